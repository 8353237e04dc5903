"""Server-sent events: framing, and a response that tells faults before and after the first byte apart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.api.context import facts_of
from app.api.error_handlers import as_error
from app.api.hangup import ClientGone, closing, run_unless_gone, within

DONE = b"data: [DONE]\n\n"

#: Line ends in the eyes of some clients' line splitters. In JSON they only occur inside strings, so escapes are equal.
_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def frame(data: Mapping[str, Any]) -> bytes:
    """Return one event: ``data: {json}`` in UTF-8, on one line for every reader."""
    text = orjson.dumps(data)
    for character, escape in _LINE_ENDS:
        text = text.replace(character, escape)
    return b"data: " + text + b"\n\n"


class EventStream(Response):
    """Streams frames to the caller.

    The 200 goes out with the first frame: an error before it becomes a real status. An error after it becomes one
    ``data: {"error": …}`` event, after which the stream ends without ``[DONE]``. However the stream ends (end, fault,
    deadline, hang-up, cancellation), the frames' iterator is closed, in the task that read it.
    """

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[bytes], deadline: float) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.frames = frames
        self.deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        await run_unless_gone(receive, self._pump(scope, send))

    async def _pump(self, scope: Scope, send: Send) -> None:
        facts = facts_of(scope)
        try:
            async with within(self.deadline), closing(self.frames) as frames:
                async for data in frames:
                    if facts.sent_status is None:
                        await send(self._start())
                    await send(_body(data))
        except ClientGone:
            raise
        except Exception as error:
            if facts.sent_status is None:
                raise
            known = as_error(error, scope)
            facts.outcome, facts.code = known.status, known.code
            await send(_body(frame(known.body())))
        await send(_body(b"", more=False))

    def _start(self) -> Message:
        return {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}


def _body(data: bytes, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
