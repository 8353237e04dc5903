"""The text of a page: decoded as its server or the page itself says, and for HTML without what is no part of it."""

from __future__ import annotations

import codecs
import re
from typing import Any

from app.apps.fetching.web import Page

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_META = re.compile(rb"<meta[^>]{0,512}?charset\s*=\s*[\"']?\s*([a-z0-9_:.-]{1,40})", re.IGNORECASE)
#: Where a page names its charset, by the HTML standard.
_META_BYTES = 1024
# Charsets of pages by Python's names; others that Python has are no text, or slow by the square of the length.
_PAGE_CODECS = ("utf-8", "utf-16", "iso8859", "cp125", "cp866", "cp874", "koi8", "mac", "gb", "big5", "euc", "shift")
# What browsers read these as.
_WINDOWS = {"ascii": "cp1252", "iso8859-1": "cp1252"}

_SPACE = re.compile(r"[\x00\s]+")

#: No part of a page's text; the last two are Wikipedia's marks for notes and for editing.
_ASIDE = (
    "//script | //style | //noscript | //template | //nav | //footer | //aside | //form | //button | //select"
    " | //svg | //iframe | //object | //textarea | //*[@hidden] | //*[@aria-hidden='true']"
    " | //sup[contains(@class, 'reference')] | //*[contains(@class, 'mw-editsection')]"
)
_MAIN = ("//main", "//*[@role='main']", "//article", "//body")
#: Elements that stand on lines of their own.
_BLOCKS = (
    *(
        "address",
        "article",
        "blockquote",
        "br",
        "caption",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
    ),
    *("figure", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre", "section"),
    *("summary", "table", "td", "th", "tr", "ul"),
)


def read_page(page: Page) -> tuple[str, str]:
    """Return title and text of a page; the title is empty where it has none, as plain text does."""
    if page.media_type not in ("text/html", "application/xhtml+xml"):
        return "", decode(page.body, page.charset).strip()
    head = page.body[:_META_BYTES]
    named = _META.search(head)
    return _read_html(decode(page.body, page.charset or (named[1].decode() if named else "")))


def decode(body: bytes, charset: str) -> str:
    """Return the body as text: by its byte order mark, by ``charset`` where that is one, else as UTF-8 or Windows-1252.

    What the charset does not have becomes the replacement character.
    """
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(codec, "replace")
    if codec := _codec(charset):
        return body.decode(codec, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def _codec(charset: str) -> str:
    """Return Python's name of a charset, empty for one that no page has."""
    try:
        name = codecs.lookup(charset.strip()).name
    except (LookupError, ValueError):
        return ""
    name = _WINDOWS.get(name, name)
    return name if name.startswith(_PAGE_CODECS) else ""


def _read_html(html: str) -> tuple[str, str]:
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True)
    # Line ends of the source are white space; those that are put in below stand for blocks.
    source = _SPACE.sub(" ", html)
    try:
        root = etree.fromstring(source.encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError:
        return "", ""
    if root is None:
        return "", ""
    title = _folded("".join(root.xpath("string((//head//title)[1])")))
    for element in root.xpath(_ASIDE):
        _remove(element)
    main = next((found[0] for path in _MAIN if len(found := root.xpath(path)) == 1), root)
    for block in main.iter(*_BLOCKS):
        block.text, block.tail = f"\n{block.text or ''}", f"\n{block.tail or ''}"
    whole = etree.tostring(main, method="text", encoding="unicode", with_tail=False)
    lines = (_folded(line) for line in whole.split("\n"))
    return title, "\n".join(line for line in lines if line)


def _remove(element: Any) -> None:
    """Take an element out and leave the text that follows it, which lxml hangs onto it."""
    parent = element.getparent()
    if parent is None:
        return
    before, tail = element.getprevious(), element.tail or ""
    if before is None:
        parent.text = (parent.text or "") + tail
    else:
        before.tail = (before.tail or "") + tail
    parent.remove(element)


def _folded(text: str) -> str:
    return " ".join(text.split())
