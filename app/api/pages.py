"""The web page at ``/``, the API's description at ``/docs``, and their files under ``/static/``."""

from __future__ import annotations

import os
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.datastructures import Headers
from starlette.responses import FileResponse
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import Receive, Scope, Send

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).resolve().parents[1] / "web"
_METHODS = ["GET", "HEAD"]

#: Everything comes from the gateway itself; no inline scripts or styles, no frames, no plug-ins.
_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: Set here, since the platform's own table differs between machines.
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}


class WholeFile(FileResponse):
    """A file that is always sent whole: a faulty ``Range`` would be answered in plain text."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)


class WebFiles(StaticFiles):
    """Files with a strict content security policy, asked for anew each time (ETag) and never guessed at."""

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return the file, or 304 when the caller's copy is the same."""
        media_type = _MEDIA_TYPES.get(Path(full_path).suffix, "application/octet-stream")
        headers = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": _SECURITY_POLICY,
            "Referrer-Policy": "no-referrer",
            "Accept-Ranges": "none",
        }
        response = WholeFile(full_path, status_code, headers, media_type, stat_result=stat_result)
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response


_files = WebFiles(directory=_FOLDER, check_dir=False)


@router.api_route("/", methods=_METHODS)
async def index(request: Request) -> Response:
    """Return the web page."""
    return await _files.get_response("index.html", request.scope)


@router.api_route("/docs", methods=_METHODS)
async def docs(request: Request) -> Response:
    """Return the page that shows the API's description."""
    return await _files.get_response("docs.html", request.scope)


@router.api_route("/static/{path:path}", methods=_METHODS)
async def web_file(path: str, request: Request) -> Response:
    """Return a file of the web page."""
    return await _files.get_response(path, request.scope)
