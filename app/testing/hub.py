"""A shipped fake model hub: a local server that speaks the part of the Hugging Face Hub's API that downloads use.

It counts requests, and breaks off, damages or withholds files on demand.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

#: Files from this size on are listed by SHA-256, as the hub does with those in its large file storage.
_LARGE_BYTES = 1024


class FakeHub:
    """Serves ``models`` (id → file name → bytes) on a free port of this machine while it is entered.

    ``url`` is for ``HF_ENDPOINT``. ``requests`` are the paths asked for, ``ranges`` the places where files were begun.
    ``busy`` makes it answer 429 to everything. ``gated`` are ids that nobody may read, ``damaged`` are files that come
    with one byte changed, and ``broken_after`` is the number of bytes after which each connection for a large file is
    closed. ``flowing`` is set; while it is not, large files wait.
    """

    def __init__(self, models: Mapping[str, Mapping[str, bytes]]) -> None:
        self.models = {name: dict(files) for name, files in models.items()}
        self.requests: list[str] = []
        self.ranges: list[int] = []
        self.busy = False
        self.gated: set[str] = set()
        self.damaged: set[str] = set()
        self.broken_after: int | None = None
        self.flowing = Event()
        self.flowing.set()
        self._server = _Server(self)

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def commit(self, model: str) -> str:
        """Return the revision that ``main`` of a model points to: it follows from the files."""
        files = {path: _checksums(content) for path, content in self.models[model].items()}
        return hashlib.sha1(repr(sorted(files.items())).encode(), usedforsecurity=False).hexdigest()

    def listing(self, model: str) -> list[dict[str, Any]]:
        """Return the facts of a model's files, by the names of the API's tree."""
        found = []
        for path, content in sorted(self.models[model].items()):
            git, sha256 = _checksums(content)
            entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git}
            if len(content) >= _LARGE_BYTES:
                entry["lfs"] = {"oid": sha256, "sha256": sha256, "size": len(content), "pointerSize": 130}
            found.append(entry)
        return found

    def sent(self, model: str, path: str) -> bytes:
        """Return a file as it goes out."""
        content = self.models[model][path]
        return content[:-1] + bytes([content[-1] ^ 1]) if path in self.damaged else content


@lru_cache(maxsize=64)
def _checksums(content: bytes) -> tuple[str, str]:
    """Return git's checksum and SHA-256: once, since every request asks for them."""
    git = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    git.update(content)
    return git.hexdigest(), hashlib.sha256(content).hexdigest()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: FakeHub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def _route(self) -> None:
        hub, path = self.server.hub, urlsplit(self.path).path
        hub.requests.append(path)
        api = re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^/]+))?", path)
        resolve = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        found = api or resolve
        model = found[1] if found else ""
        revision = (api[3] if api else resolve[2] if resolve else None) or "main"
        if hub.busy:
            self._refuse(429, "")
        elif model not in hub.models:
            self._refuse(404, "RepoNotFound")
        elif model in hub.gated:
            self._refuse(403, "GatedRepo")
        elif revision not in ("main", hub.commit(model)):
            self._refuse(404, "RevisionNotFound")
        elif api:
            self._answer(hub.listing(model) if api[2] == "tree" else self._info(model))
        elif resolve and resolve[3] in hub.models[model]:
            self._file(model, resolve[3])
        else:
            self._refuse(404, "EntryNotFound")

    def _info(self, model: str) -> dict[str, Any]:
        hub = self.server.hub
        files = [
            {"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]}
            | ({"lfs": entry["lfs"]} if "lfs" in entry else {})
            for entry in hub.listing(model)
        ]
        return {
            "id": model,
            "modelId": model,
            "sha": hub.commit(model),
            "siblings": files,
            "private": False,
            "tags": [],
        }

    def _file(self, model: str, path: str) -> None:
        hub = self.server.hub
        entry = next(entry for entry in hub.listing(model) if entry["path"] == path)
        content = hub.sent(model, path)
        etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
        begun = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(begun[1]) if begun else 0
        self.send_response(206 if begun else 200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", hub.commit(model))
        self.send_header("Content-Length", str(len(content) - start))
        if begun:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            hub.ranges.append(start)
            if "lfs" in entry:
                hub.flowing.wait()
            end = None if hub.broken_after is None or "lfs" not in entry else start + hub.broken_after
            self.wfile.write(content[start:end])
            if end is not None and end < len(content):
                self.close_connection = True

    def _answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server calls it by
        """Say nothing."""
