"""The fake engine behind the barest OpenAI server: one process, uvicorn on uvloop and httptools, raw ASGI.

``python -m tests.bench.overhead_bare PORT SECONDS_PER_TOKEN WORD …``
"""

from __future__ import annotations

import sys
from typing import Any

import orjson
import uvicorn

from app.testing.engine import FakeEngine

_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


def build(seconds_per_token: float, words: list[str]) -> Any:
    """Return the ASGI application."""
    engine = FakeEngine(words, seconds_per_token)

    async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async for items in engine.generate("chat", orjson.loads(body)):
            await send({"type": "http.response.body", "body": "".join(items).encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return answer


if __name__ == "__main__":
    application = build(float(sys.argv[2]), sys.argv[3:])
    options: dict[str, Any] = {"loop": "uvloop", "http": "httptools", "lifespan": "off", "ws": "none"}
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False, **options)
