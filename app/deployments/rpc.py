"""RPCs as methods of ingress deployments: Serve calls the one with the RPC's name, and passes ``grpc_context``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.api.request_ids import REQUEST_ID
from app.api.rpc.service import RpcService
from app.api.rpc.status import CallContext, not_deployed, tell
from app.config.applications import ANALYZE, ARTICLES
from app.protos import baton_pb2


class GatewayRpcs:
    """The RPCs of the pipeline; ``_rpc`` asks the gateway's API.

    Where the pipeline is the only application with a route, Serve's proxy sends it the RPCs of all others too.
    """

    _rpc: RpcService

    async def Chat(  # noqa: N802 - the RPC's name
        self, request: baton_pb2.ChatRequest, grpc_context: CallContext
    ) -> baton_pb2.ChatReply:
        """Answer a conversation in one piece."""
        return await self._rpc.chat(request, grpc_context)

    async def ChatStream(  # noqa: N802
        self, request: baton_pb2.ChatRequest, grpc_context: CallContext
    ) -> AsyncGenerator[baton_pb2.ChatChunk, None]:
        """Answer a conversation piece by piece."""
        async with aclosing(self._rpc.chat_stream(request, grpc_context)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def Retrieve(  # noqa: N802
        self, request: baton_pb2.RetrieveRequest, grpc_context: CallContext
    ) -> baton_pb2.RetrieveReply:
        """Search collections."""
        return await self._rpc.retrieve(request, grpc_context)

    async def Analyze(  # noqa: N802
        self, request: baton_pb2.AnalyzeRequest, grpc_context: CallContext
    ) -> baton_pb2.AnalyzeReply:
        """Tell that nobody analyses texts here."""
        _refuse(grpc_context, ANALYZE)
        return baton_pb2.AnalyzeReply()

    async def Articles(  # noqa: N802
        self, request: baton_pb2.ArticlesRequest, grpc_context: CallContext
    ) -> baton_pb2.ArticlesReply:
        """Tell that nobody digests articles here."""
        _refuse(grpc_context, ARTICLES)
        return baton_pb2.ArticlesReply()


class ApplicationRpcs:
    """The RPCs of the applications beside the pipeline; ``_rpc`` asks the API of the one that has them."""

    _rpc: RpcService

    async def Analyze(  # noqa: N802
        self, request: baton_pb2.AnalyzeRequest, grpc_context: CallContext
    ) -> baton_pb2.AnalyzeReply:
        """Analyse a text."""
        return await self._rpc.analyze(request, grpc_context)

    async def Articles(  # noqa: N802
        self, request: baton_pb2.ArticlesRequest, grpc_context: CallContext
    ) -> baton_pb2.ArticlesReply:
        """Digest an article."""
        return await self._rpc.articles(request, grpc_context)


def _refuse(context: CallContext, application: str) -> None:
    sent = dict(context.invocation_metadata())
    tell(context, {REQUEST_ID: sent.get(REQUEST_ID, "")}, not_deployed(application).body())
