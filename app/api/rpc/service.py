"""Baton's RPCs: each asks the API in this process, so that HTTP and gRPC share one pipeline, its checks and its errors.

Errors are told in the call's status, never raised: Serve keeps no trailing metadata of a method that raises, and writes
the error's text into its log.
"""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar
from urllib.parse import urlencode

import orjson
from google.protobuf.message import Message
from starlette.types import ASGIApp

from app.api.request_ids import REQUEST_ID
from app.api.routing import SESSION_ID
from app.api.rpc.exchange import Reply, asked
from app.api.rpc.messages import chat_body, fields_of, parse_reply, retrieve_body
from app.api.rpc.status import CallContext, tell
from app.api.sse import DONE
from app.errors import InternalError
from app.logs import logger
from app.protos import baton_pb2

M = TypeVar("M", bound=Message)
_log = logger("gateway")

#: Seconds until the call's own deadline, as ``app/deployments/rpc_proxy.py`` writes them into the metadata.
SECONDS_LEFT = "x-baton-seconds-left"
_HANDED_ON = ("authorization", REQUEST_ID, SESSION_ID, "traceparent", "tracestate")
#: A deadline that has passed already is a very short one: the stage that notices names itself.
_SHORTEST_SECONDS = 0.001
_DATA = b"data: "
#: The field that makes of a request a search, which HTTP asks with GET.
_SEARCH_TERM = "search_term"
_BROKEN = InternalError("Something broke on our side before the answer was complete; the log tells more.").body()


class RpcService:
    """Answers calls by asking the API ``app``. ``longest_seconds`` tells the longest deadline that it takes."""

    def __init__(self, app: ASGIApp, longest_seconds: Callable[[], float]) -> None:
        self._app = app
        self._longest_seconds = longest_seconds

    async def chat(self, request: baton_pb2.ChatRequest, context: CallContext) -> baton_pb2.ChatReply:
        """Answer a conversation in one piece."""
        return await self._ask("/v1/chat/completions", chat_body(request), baton_pb2.ChatReply(), context)

    async def retrieve(self, request: baton_pb2.RetrieveRequest, context: CallContext) -> baton_pb2.RetrieveReply:
        """Search collections."""
        return await self._ask("/v1/retrieve", retrieve_body(request), baton_pb2.RetrieveReply(), context)

    async def analyze(self, request: baton_pb2.AnalyzeRequest, context: CallContext) -> baton_pb2.AnalyzeReply:
        """Analyse a text."""
        return await self._ask("/analyze", fields_of(request), baton_pb2.AnalyzeReply(), context)

    async def articles(self, request: baton_pb2.ArticlesRequest, context: CallContext) -> baton_pb2.ArticlesReply:
        """Digest an article; a term to search for is asked with GET."""
        return await self._ask("/articles", fields_of(request), baton_pb2.ArticlesReply(), context)

    async def chat_stream(
        self, request: baton_pb2.ChatRequest, context: CallContext
    ) -> AsyncGenerator[baton_pb2.ChatChunk, None]:
        """Answer a conversation piece by piece. An error sets the status, which goes out with one empty message."""
        body = chat_body(request) | {"stream": True, "stream_options": {"include_usage": True}}
        try:
            async with self._asked("/v1/chat/completions", body, context) as reply:
                if reply.status != 200:
                    tell(context, reply.headers, orjson.loads(await reply.whole()))
                    yield baton_pb2.ChatChunk()
                    return
                tell(context, reply.headers)
                async for part in reply.parts:  # one event each
                    if part != DONE:
                        yield _chunk(part.removeprefix(_DATA), reply, context)
        except Exception as error:
            _tell_broken(context, error)
            yield baton_pb2.ChatChunk()

    async def _ask(self, path: str, body: dict[str, Any], empty: M, context: CallContext) -> M:
        try:
            async with self._asked(path, body, context) as reply:
                raw = await reply.whole()
                if reply.status == 200:
                    tell(context, reply.headers)
                    return parse_reply(orjson.loads(raw), empty)
                tell(context, reply.headers, orjson.loads(raw))
        except Exception as error:
            _tell_broken(context, error)
        return empty

    def _asked(self, path: str, body: dict[str, Any], context: CallContext) -> AbstractAsyncContextManager[Reply]:
        metadata = dict(context.invocation_metadata())
        headers = {name: metadata[name] for name in _HANDED_ON if name in metadata}
        timed = self._timed(body, metadata)
        if _SEARCH_TERM in body:
            return asked(self._app, f"{path}?{urlencode(timed)}", headers, None)
        return asked(self._app, path, headers, orjson.dumps(timed))

    def _timed(self, body: dict[str, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
        """Return the body with the earlier of its own deadline and the call's, which may lie as far off as it likes."""
        if SECONDS_LEFT not in metadata:
            return body
        left = min(max(float(metadata[SECONDS_LEFT]), _SHORTEST_SECONDS), self._longest_seconds())
        own = body.get("timeout_seconds")
        if own is not None and not (isinstance(own, float) and own > left):
            return body  # the API judges what is no time at all
        return body | {"timeout_seconds": left}


def _tell_broken(context: CallContext, error: Exception) -> None:
    # The type and the place, never the message: it may quote an answer.
    _log.error("an RPC failed with %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    tell(context, {}, _BROKEN)


def _chunk(data: bytes, reply: Reply, context: CallContext) -> baton_pb2.ChatChunk:
    event = orjson.loads(data)
    if "error" in event:
        tell(context, reply.headers, event)
        return baton_pb2.ChatChunk()
    return parse_reply(event, baton_pb2.ChatChunk())
