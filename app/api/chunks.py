"""Streamed answers: the pipeline's events as frames, in the shape that a writer gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

from app.api.hangup import closing
from app.api.replies import baton_body, ended, opened, usage_body
from app.api.sse import DONE, frame
from app.jobs import ChatEvent, ChatJob, Finished
from app.messages import Delta

Chunk = Mapping[str, Any]


class ChunkWriter(Protocol):
    """The chunks of one endpoint's stream."""

    def opening(self, n: int) -> Iterator[Chunk]:
        """Yield what comes before any text."""
        ...

    def piece(self, delta: Delta) -> Chunk | None:
        """Return the chunk for a delta, without its finish reason; None when nothing else is in it."""
        ...

    def finish(self, index: int, reason: str) -> Chunk:
        """Return the chunk that ends one choice."""
        ...

    def closing_fields(self, finished: Finished, baton: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the very last finish chunk holds besides."""
        ...

    def usage(self, usage: Mapping[str, int]) -> Chunk:
        """Return the chunk for the token counts."""
        ...


async def stream_frames(
    events: AsyncIterator[ChatEvent], job: ChatJob, writer: ChunkWriter, include_usage: bool = False
) -> AsyncIterator[bytes]:
    """Yield the frames of a streamed answer, from the opening chunk to ``[DONE]``.

    Each choice ends in one finish chunk. The last of them is held back until the pipeline has finished and carries the
    field ``baton``, so it is the last chunk with a choice; when asked for, the token counts follow in a chunk of their
    own with no choices. Text is never held back here.
    """
    finished: Finished | None = None
    held: tuple[int, str] | None = None
    async with closing(events) as stream:
        await opened(stream)
        for chunk in writer.opening(job.n):
            yield frame(chunk)
        async for event in stream:
            if isinstance(event, Finished):
                finished = event
            if not isinstance(event, Delta):
                continue
            if (piece := writer.piece(event)) is not None:
                yield frame(piece)
            if event.finish_reason is not None:
                if held is not None:
                    yield frame(writer.finish(*held))
                held = (event.index, event.finish_reason)
    for chunk in _ending(ended(finished), job, writer, held):
        yield frame(chunk)
    if include_usage:
        yield frame(writer.usage(usage_body(ended(finished).usage)))
    yield DONE


def _ending(finished: Finished, job: ChatJob, writer: ChunkWriter, held: tuple[int, str] | None) -> Iterator[Chunk]:
    index, reason = held or (0, "stop")
    yield {**writer.finish(index, reason), **writer.closing_fields(finished, baton_body(finished, job))}
