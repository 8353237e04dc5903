"""Asking the API within this process: a request goes through all of its middleware, as one that came over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

_Queue = asyncio.Queue[Message | None]


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that has begun. ``parts`` yields its body as it comes, and raises what ended it."""

    status: int
    headers: Mapping[str, str]
    parts: AsyncIterator[bytes]

    async def whole(self) -> bytes:
        """Return the body to its end."""
        return b"".join([part async for part in self.parts])


@asynccontextmanager
async def asked(app: ASGIApp, path: str, headers: Mapping[str, str], body: bytes | None) -> AsyncIterator[Reply]:
    """Send a POST with a body, or a GET without, and yield the reply; ``path`` may have a query.

    On leaving, whatever still works on it is cancelled and has cleaned up.
    """
    queue: _Queue = asyncio.Queue()
    call = app(_scope(path, headers, body), _once(body or b""), queue.put)
    task = asyncio.ensure_future(call)
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        start = await queue.get()
        if start is None:
            await task  # raises what the API raised
            raise RuntimeError("the API ended without a reply")
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        yield Reply(start["status"], told, _parts(queue, task))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _parts(queue: _Queue, task: asyncio.Future[None]) -> AsyncIterator[bytes]:
    while (message := await queue.get()) is not None:
        if message.get("body"):
            yield message["body"]
    await task


def _once(body: bytes) -> Any:
    """Return ASGI's ``receive`` for a whole body; the caller's hang-up is told by a cancellation instead."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    return receive


def _scope(path: str, headers: Mapping[str, str], body: bytes | None) -> dict[str, Any]:
    path, _, query = path.partition("?")
    sent = dict(headers)
    if body is not None:
        sent |= {"content-type": "application/json", "content-length": str(len(body))}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": "GET" if body is None else "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in sent.items()],
        "client": None,
        "server": None,
    }
