"""A shipped fake wiki: a local HTTP server that speaks the part of MediaWiki's API that Baton uses, and has its pages.

Search finds pages whose title or text has every word of the term; those with a word in the title come first.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from app.config.fetching import FetchConfig


class FakeMediaWiki:
    """Serves ``pages`` (title → text) on a free port of this machine while it is entered; ``searches`` are the terms.

    ``api_url`` is its `api.php`; ``/wiki/<title>`` gives a page as HTML.
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages = dict(pages)
        self.searches: list[str] = []
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self._server = _Server(self)
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        if self._server is None:
            raise RuntimeError("enter the fake wiki first: with FakeMediaWiki(pages) as wiki")
        return self._server.server_port

    @property
    def api_url(self) -> str:
        """Return the URL of its API."""
        return f"http://127.0.0.1:{self.port}/w/api.php"

    def page_url(self, title: str) -> str:
        """Return the URL of a page."""
        return f"http://127.0.0.1:{self.port}/wiki/{quote(title.replace(' ', '_'))}"

    def config(self) -> FetchConfig:
        """Return a configuration under which this wiki, on this machine, may be searched and fetched from."""
        return FetchConfig.model_validate(
            {
                "mediawiki_url": self.api_url,
                "allowed_hosts": ["127.0.0.1"],
                "allowed_ports": [self.port],
                "private_networks": ["127.0.0.1/32"],
            }
        )

    def query(self, question: Mapping[str, str]) -> dict[str, Any]:
        """Answer ``action=query`` with a search as its generator, in format version 2."""
        if question.get("action") != "query" or question.get("generator") != "search":
            return {"error": {"code": "badvalue", "info": "This wiki knows action=query with generator=search."}}
        term = question.get("gsrsearch", "")
        self.searches.append(term)
        found = self._search(term.casefold().split())[: int(question.get("gsrlimit", "10"))]
        # A real wiki leaves `query` out when nothing is found.
        return {"batchcomplete": True} | ({"query": {"pages": found}} if found else {})

    def _search(self, words: list[str]) -> list[dict[str, Any]]:
        hits = [
            title
            for title, text in self.pages.items()
            if words and all(word in f"{title} {text}".casefold() for word in words)
        ]
        hits.sort(key=lambda title: not any(word in title.casefold() for word in words))
        numbers = {title: number for number, title in enumerate(self.pages, start=1)}
        return [
            {
                "pageid": numbers[title],
                "ns": 0,
                "title": title,
                "index": index,
                "canonicalurl": self.page_url(title),
                "extract": self.pages[title],
            }
            for index, title in enumerate(hits, start=1)
        ]

    def page(self, title: str) -> str | None:
        """Return a page as HTML, None where there is none."""
        if title not in self.pages:
            return None
        paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in self.pages[title].splitlines())
        head = f"<head><meta charset='utf-8'><title>{html.escape(title)}</title></head>"
        return f"<!doctype html><html>{head}<body><nav>Main page</nav><main>{paragraphs}</main></body></html>"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, wiki: FakeMediaWiki) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wiki = wiki


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/w/api.php":
            question = {name: values[0] for name, values in parse_qs(url.query).items()}
            self._answer(200, "application/json", json.dumps(self.server.wiki.query(question)))
            return
        page = self.server.wiki.page(unquote(url.path.removeprefix("/wiki/")).replace("_", " "))
        self._answer(404 if page is None else 200, "text/html", page or "There is no such page.")

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server calls it by
        """Say nothing: a term that somebody searches for belongs into no log."""
