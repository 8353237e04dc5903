"""How the rival's services talk: messages as JSON, the payload as the raw bytes of an Arrow IPC stream behind it.

A body is eight bytes (length of the message), the message, blanks up to the next multiple of 64, and the payload, if
there is one: read in place at both ends, so that what is received is decoded without a copy.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
import orjson
import pyarrow as pa
from pydantic import TypeAdapter

from app.errors import StageUnavailable
from app.handles import Pending
from app.messages import (
    AssembleRequest,
    JudgeRequest,
    PostprocessRequest,
    Prompt,
    Report,
    RetrievalQuery,
    Retrieved,
    Verdict,
)

_ALIGNMENT = 64
_SCHEMA_ROOM = 16 * 1024
#: What each service takes; what it answers with; the retriever's answer is the payload itself.
TAKES = {
    "guardrail": TypeAdapter(JudgeRequest),
    "retriever": TypeAdapter(RetrievalQuery),
    "assembler": TypeAdapter(AssembleRequest),
    "postprocessor": TypeAdapter(PostprocessRequest),
}
_GIVES = {"guardrail": TypeAdapter(Verdict), "assembler": TypeAdapter(Prompt), "postprocessor": TypeAdapter(Report)}
#: What the guardrail and the assembler read of the payload.
_TEXTS = ["text", "source"]


@dataclass(frozen=True, slots=True)
class Received(Retrieved):
    """A payload that came over the network, with the bytes it lies in, ready to be sent on."""

    raw: Any = None


def head(message: bytes, payload: bool) -> bytes:
    """Return what stands before the payload."""
    framed = len(message).to_bytes(8, "little") + message
    return framed.ljust(-(-len(framed) // _ALIGNMENT) * _ALIGNMENT) if payload else framed


def dump(message: Any) -> bytes:
    """Return a message as JSON."""
    return orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS)


def table_bytes(table: pa.Table) -> memoryview:
    """Return a table as an Arrow IPC stream: one copy of it, into memory of the right size."""
    batch = table.combine_chunks().to_batches()[0]
    buffer = pa.allocate_buffer(pa.ipc.get_record_batch_size(batch) + _SCHEMA_ROOM)
    sink = pa.FixedSizeBufferWriter(buffer)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(buffer)[: sink.tell()]


def payload_parts(retrieved: Retrieved) -> list[Any]:
    """Return a payload as it travels: its small facts and the bytes of its table."""
    facts = {
        "top_k": retrieved.top_k,
        "question_truncated": retrieved.question_truncated,
        "milliseconds": dict(retrieved.milliseconds),
    }
    raw = retrieved.raw if isinstance(retrieved, Received) else table_bytes(retrieved.passages)
    return [dump(facts), raw]


def split(body: memoryview) -> tuple[memoryview, memoryview]:
    """Return the message and the payload of a body, as views into it."""
    length = int.from_bytes(body[:8], "little")
    end = 8 + length
    return body[8:end], body[-(-end // _ALIGNMENT) * _ALIGNMENT :]


def read_payload(facts: Mapping[str, Any], raw: memoryview) -> Received:
    """Return the payload in ``raw``, mapped in place."""
    return Received(passages=pa.ipc.open_stream(pa.py_buffer(raw)).read_all(), raw=raw, **facts)


class HttpCall:
    """The way to a stage that is a service; takes the place of ``app.handles.RemoteCall``.

    The guardrail and the assembler get the few passages that may reach the prompt, since that is all they read;
    with ``whole`` they get the payload as it is, as the stages' contract has it.
    """

    def __init__(self, stage: str, url: str, session: aiohttp.ClientSession, *, whole: bool = False) -> None:
        self._stage = stage
        self._url = url
        self._session = session
        self._whole = whole or stage == "postprocessor"

    def submit(self, request: Any, payload: Pending | None = None) -> Pending:
        """Start the stage in a task."""
        return Pending(self._stage).run(self._run(request, payload))

    async def call(self, request: Any, deadline: float) -> Any:
        """Run the stage on a small request."""
        async with asyncio.timeout_at(deadline):
            return await self._run(request, None)

    async def _run(self, request: Any, payload: Pending | None) -> Any:
        if payload is None:
            return await self._exchange([head(dump(request), False)])
        retrieved = await payload.result(math.inf)
        facts, raw = payload_parts(retrieved if self._whole else _texts_of(retrieved))
        message = dump({"request": request, "payload": orjson.Fragment(facts)})
        return await self._exchange([head(message, True), raw])

    async def _exchange(self, parts: list[Any]) -> Any:
        body = await post(self._session, self._url, parts)
        if self._stage == "retriever":
            message, raw = split(body)
            return read_payload(orjson.loads(message), raw)
        return _GIVES[self._stage].validate_json(bytes(body))


def _texts_of(retrieved: Retrieved) -> Retrieved:
    shown = retrieved.passages.slice(0, retrieved.top_k).select(_TEXTS)
    return Retrieved(shown, retrieved.top_k, retrieved.question_truncated, retrieved.milliseconds)


async def post(session: aiohttp.ClientSession, url: str, parts: list[Any]) -> memoryview:
    """Send the parts of a body over a pooled connection, none of them joined; return the reply's body."""
    length = sum(len(part) for part in parts)
    data = parts[0] if len(parts) == 1 else _each(parts)
    async with session.post(url, data=data, headers={"Content-Length": str(length)}) as reply:
        body = bytearray(reply.content_length or 0)
        start = 0
        async for chunk in reply.content.iter_any():
            body[start : start + len(chunk)] = chunk
            start += len(chunk)
        if reply.status != 200:
            raise StageUnavailable(f"{url} answered {reply.status}: {bytes(body[:300])!r}")
    return memoryview(body)


async def _each(parts: list[Any]) -> AsyncIterator[Any]:
    for part in parts:
        yield part


class HttpEngine:
    """The way to the generator's service, asked for the whole answer at once."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def generate(self, kind: str, body: Mapping[str, Any], trace: Any = None) -> AsyncIterator[Any]:
        """Yield the answer as one piece, and the usage."""
        reply = await post(self._session, self._url, [dump({"kind": kind, "body": body})])
        for item in orjson.loads(reply):
            yield item


def merged(items: list[Any]) -> list[Any]:
    """Return an engine's events as one piece of text (of the only choice) and the usage."""
    events = [orjson.loads(part[6:]) for item in items for part in item if part.startswith("data: {")]
    choices = [choice for event in events for choice in event["choices"]]
    logprobs = [entry for choice in choices for entry in (choice.get("logprobs") or {}).get("content", ())]
    whole = {
        "index": 0,
        "delta": {"content": "".join(choice["delta"]["content"] for choice in choices)},
        "logprobs": {"content": logprobs},
        "finish_reason": choices[-1]["finish_reason"],
    }
    return [{"choices": [whole]}, next(event for event in events if event.get("usage"))]


def answer_parts(result: Any) -> list[Any]:
    """Return the body of a stage's answer."""
    if not isinstance(result, Retrieved):
        return [dump(asdict(result))]
    facts, raw = payload_parts(result)
    return [head(facts, True), raw]
