"""Pages come in as text; everything that could harm the one who fetches is refused with a sentence."""

import asyncio
import gzip
import ssl
import time
import tracemalloc

import pytest
from web_site import HOST, Lookups, answer, fetch, packed, redirect, self_signed, site

from app.apps.fetching.article import Article
from app.errors import DeadlineExceeded, PageUnusable, UpstreamFailed, UpstreamTimeout, UrlRefused

HTML = b"""<!doctype html><html><head><title>Otters
 at home</title><style>p {}</style></head><body><nav>Menu</nav><main><h1>Otters</h1>
<p>They <b>swim</b>,<br>they dive.<script>bad()</script> So<sup class="reference">[1]</sup> there.</p><p hidden>no</p>
<ul><li>one</li><li>two</li></ul><!-- a note --></main><footer>Imprint</footer></body></html>"""
TEXT = "Otters\nThey swim,\nthey dive. So there.\none\ntwo"
KIB = 1024


async def test_html_becomes_title_and_text():
    async with site() as served:
        served.pages["/wiki/Otter?a=1"] = answer(HTML)
        assert await fetch(served, "/wiki/Otter?a=1") == Article(
            "Otters at home", f"http://{HOST}:{served.port}/wiki/Otter?a=1", TEXT
        )
        assert served.header("Host") == f"{HOST}:{served.port}"
        assert served.header("User-Agent") == "Baton (articles)"


async def test_plain_text_stays_as_it_is_and_compressed_pages_are_unpacked():
    async with site() as served:
        served.pages["/a.txt"] = answer("Grüße\n  an alle\n".encode("latin-1"), "text/plain; charset=ISO-8859-1")
        served.pages["/packed"] = packed(HTML)
        article = await fetch(served, "/a.txt")
        assert (article.title, article.text) == ("", "Grüße\n  an alle")
        assert (await fetch(served, "/packed")).text == TEXT


async def test_redirects_are_followed_and_the_article_has_the_last_url():
    async with site() as served:
        served.pages |= {"/a": redirect("b?x=1"), "/b?x=1": redirect("/c#part", "301 Moved"), "/c": answer(HTML)}
        article = await fetch(served, "/a")
        assert article.url == f"http://{HOST}:{served.port}/c"
        served.pages["/loop"] = redirect("/loop")
        with pytest.raises(PageUnusable, match="redirects more than 3 times"):
            await fetch(served, "/loop")
        with pytest.raises(PageUnusable, match="redirects more than 0 times"):
            await fetch(served, "/a", max_redirects=0)


# --- where to -----------------------------------------------------------------------------------------------------


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to():
    """The name points to an allowed address when it is looked up first, and elsewhere ever after."""
    async with site() as served:
        served.pages["/"] = answer(HTML)
        lookups = Lookups(["127.0.0.1"], ["127.0.0.2"])
        assert (await fetch(served, lookups=lookups)).text == TEXT
        assert lookups.asked == [HOST]
        with pytest.raises(UrlRefused, match=r"page\.example' leads to an address that is not public"):
            await fetch(served, lookups=lookups)
        assert len(served.requests) == 1


async def test_a_name_with_one_private_address_among_public_ones_is_refused():
    async with site() as served:
        with pytest.raises(UrlRefused) as refused:
            await fetch(served, lookups=Lookups(["127.0.0.1", "10.0.0.7"]))
        assert "10.0.0.7" not in refused.value.message
        assert (refused.value.status, refused.value.param) == (400, "url")


async def test_an_address_that_does_not_answer_is_passed_over():
    async with site() as served:
        served.pages["/"] = answer(HTML)
        lookups = Lookups(["127.0.0.9", "127.0.0.1"])
        assert (await fetch(served, lookups=lookups, private_networks=["127.0.0.0/28"])).text == TEXT


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.2:{port}/inside",
        "//127.0.0.2:{port}/inside",
        "http://[::1]:{port}/inside",
        "http://[::ffff:127.0.0.2]:{port}/inside",
        "http://2130706434:{port}/inside",
        "http://user:word@page.example:{port}/inside",
        "http://page.example:1/inside",
        "file:///etc/passwd",
        "gopher://page.example:{port}/inside",
        "http://[",
    ],
)
async def test_every_hop_is_checked_anew(place):
    async with site() as served:
        served.pages |= {"/": redirect(place.format(port=served.port)), "/inside": answer(HTML)}

        async def look_up(host, port):
            return ["127.0.0.1"] if host == HOST else [host]

        with pytest.raises(UrlRefused, match=r"redirects to a URL that is refused|not public"):
            await fetch(served, lookups=look_up)
        assert len(served.requests) == 1


async def test_a_host_off_the_list_is_not_even_looked_up():
    async with site() as served:
        lookups = Lookups()
        with pytest.raises(UrlRefused, match="not among the allowed hosts"):
            await fetch(served, lookups=lookups, allowed_hosts=["*.page.example", "example"])
        served.pages["/"] = redirect("http://other.example/")
        with pytest.raises(UrlRefused, match="not among the allowed hosts"):
            await fetch(served, lookups=lookups, allowed_hosts=[HOST])
        assert lookups.asked == [HOST]


async def test_over_tls_the_name_of_the_url_is_what_is_asked_for_and_proven(tmp_path, monkeypatch):
    certificate = self_signed(HOST, tmp_path)
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificate)
    asked = []
    trust.sni_callback = lambda connection, name, context: asked.append(name)
    async with site(trust) as served:
        served.pages["/"] = answer(HTML)
        url = f"https://{HOST}:{served.port}/"
        with pytest.raises(UpstreamFailed, match="cannot be connected to"):
            await fetch(served, url=url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert (await fetch(served, url=url)).text == TEXT
        with pytest.raises(UpstreamFailed, match="cannot be connected to"):
            await fetch(served, url=url.replace(HOST, "other.example"))
    assert asked == [HOST, HOST, "other.example"]


# --- how much -----------------------------------------------------------------------------------------------------


async def endless(writer):
    writer.write(answer(kind="text/plain", Content_Length=None))
    while True:
        writer.write(b"more " * KIB)
        await writer.drain()


async def test_a_page_without_an_end_is_cut_off_at_the_limit():
    async with site() as served:
        served.pages["/"] = endless
        with pytest.raises(PageUnusable, match="larger than 65536 bytes"):
            await fetch(served, max_bytes=64 * KIB)
        await asyncio.wait_for(served.left.wait(), 5)


async def test_a_page_that_says_how_large_it_is_is_not_read_at_all():
    async with site() as served:
        served.pages["/"] = answer(b"x", Content_Length=str(10**12))
        with pytest.raises(PageUnusable, match="larger than"):
            await fetch(served)


async def test_a_bomb_is_unpacked_no_further_than_the_limit():
    bomb = gzip.compress(b"\0" * (64 * KIB * KIB))  # 64 KiB that unpack to 64 MiB
    async with site() as served:
        served.pages["/"] = answer(bomb, Content_Encoding="gzip")
        tracemalloc.start()
        try:
            with pytest.raises(PageUnusable, match="larger than 1048576 bytes"):
                await fetch(served, max_bytes=KIB * KIB)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * KIB * KIB


# --- how long -----------------------------------------------------------------------------------------------------


async def drip(writer):
    writer.write(answer(Content_Length="1000"))
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def test_a_server_that_drips_is_left_when_the_time_is_up():
    async with site() as served:
        served.pages["/"] = drip
        start = time.monotonic()
        with pytest.raises(UpstreamTimeout, match=r"within 0\.2 seconds") as late:
            await fetch(served, timeout_seconds=0.2)
        assert (late.value.status, time.monotonic() - start < 2) == (504, True)
        await asyncio.wait_for(served.left.wait(), 5)


async def test_the_requests_own_deadline_ends_a_fetch_too():
    async with site() as served:
        served.pages["/"] = drip
        with pytest.raises(DeadlineExceeded):
            await fetch(served, seconds=0.2)
        await asyncio.wait_for(served.left.wait(), 5)


async def test_the_time_for_looking_up_counts():
    async def never(host, port):
        await asyncio.sleep(30)

    async with site() as served:
        with pytest.raises(UpstreamTimeout):
            await fetch(served, lookups=never, timeout_seconds=0.1)


@pytest.mark.parametrize("tags", ["<div>", "<b>", "<"])
async def test_two_megabytes_of_tags_are_read_in_seconds(tags):
    page = (b"<title>x</title>text" + tags.encode() * 2_000_000)[:2_000_000]
    async with site() as served:
        served.pages["/"] = packed(page)
        start = time.monotonic()
        assert (await fetch(served)).text.startswith("text")
        assert time.monotonic() - start < 10


# --- what -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "error", "words"),
    [
        (answer(b"%PDF-1.7", "application/pdf"), PageUnusable, "of the type 'application/pdf': only text/html"),
        (answer(HTML, None), PageUnusable, "has no type"),
        (answer(HTML, status="404 Not Found"), PageUnusable, r"no page at this URL \(the server said 404\)"),
        (answer(b"<html><script>x</script></html>"), PageUnusable, "holds no text"),
        (answer(b""), PageUnusable, "holds no text"),
        (
            answer("<html><p>\u200b\u2060</p></html>".encode(), "text/html; charset=utf-8"),
            PageUnusable,
            "holds no text",
        ),
        (answer(HTML, status="500 Oops"), UpstreamFailed, "answered 500"),
        (answer(HTML, status="302 Found"), UpstreamFailed, "answered 302"),
        (answer(HTML, Content_Length="100000"), UpstreamFailed, "broke off"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", UpstreamFailed, "broke off"),
        (b"", UpstreamFailed, "broke off"),
        (answer(HTML, Content_Encoding="gzip"), UpstreamFailed, "cannot be decompressed"),
        (answer(gzip.compress(HTML)[:-9], Content_Encoding="gzip"), UpstreamFailed, "compressed end is missing"),
        (answer(HTML, Content_Encoding="zstd"), UpstreamFailed, "not asked for"),
    ],
)
async def test_what_cannot_be_used_is_told_apart_from_what_failed(page, error, words):
    async with site() as served:
        served.pages["/"] = page
        with pytest.raises(error, match=words) as caught:
            await fetch(served)
        assert caught.value.status == (400 if error is PageUnusable else 502)
        assert caught.value.stage == "fetcher"


async def test_a_host_that_nobody_knows_or_that_does_not_listen():
    async def unknown(host, port):
        raise OSError("no such name")

    async with site() as served:
        with pytest.raises(UpstreamFailed, match="cannot be looked up"):
            await fetch(served, lookups=unknown)
    with pytest.raises(UpstreamFailed, match="cannot be connected to"):
        await fetch(served)
