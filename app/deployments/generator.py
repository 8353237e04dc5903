"""The engine's deployment: ``ray.serve.llm``'s server, with plain data at its border.

The gateway sends OpenAI's JSON and gets SSE strings or ``{"error": …}`` mappings back, so it needs neither vLLM's
classes nor its imports (20 s of CPU time and 700 MB per process).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.serve.llm.deployment import LLMServer
from ray.serve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest

from app.deployments import serve_log
from app.deployments.engine_gauges import hold_gauges, tell_idle
from app.deployments.engine_load import EngineLoad
from app.deployments.shared_memory import remove_orphans, session_began


class GeneratorServer(LLMServer):  # type: ignore[misc]
    """Adds one streaming method to the stock server; everything else stays as it is."""

    async def start(self) -> None:
        """Start the engine, without what an engine that was killed left in shared memory."""
        self._session_began = session_began()
        self._load = EngineLoad()
        await asyncio.to_thread(remove_orphans, self._session_began)  # room for the new engine
        hold_gauges()
        with serve_log.kept():
            await super().start()
        tell_idle(getattr(self.engine, "_engine_client", None))
        await asyncio.to_thread(remove_orphans, self._session_began)  # of processes that were still ending before

    async def _start_engine(self) -> None:
        # The stock method also starts an actor that reports usage: one more process with all of the engine's imports,
        # 700 MB and 20 s of CPU time just when the first requests come.
        await self.engine.start()
        self._load.listen(getattr(self.engine, "_engine_client", None))

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what the engine is busy with; Serve asks for it on behalf of its autoscaling policy."""
        return self._load.stats()

    async def _maybe_resolve_lora_from_multiplex(self) -> None:
        # Without lora_config the adapters are those that the engine was started with (lora_modules): none is fetched.
        if self._llm_config.lora_config is not None:
            await super()._maybe_resolve_lora_from_multiplex()

    @property
    def _traces_itself(self) -> bool:
        return bool(self._llm_config.engine_kwargs.get("otlp_traces_endpoint"))

    async def __del__(self) -> None:
        """Stop the engine's own processes; killed with the replica they leave 400 MB in shared memory behind."""
        client = getattr(getattr(self, "engine", None), "_engine_client", None)
        if client is not None:
            await asyncio.to_thread(client.shutdown)
            await asyncio.to_thread(remove_orphans, self._session_began)

    async def generate(
        self, kind: str, body: dict[str, Any], trace: dict[str, str] | None = None
    ) -> AsyncGenerator[list[Any], None]:
        """Yield lists of SSE strings and ``{"error": {message, type, param, code}}`` mappings.

        ``kind`` is ``chat`` or ``completions``; closing the iterator aborts the request in the engine. ``trace``: the
        W3C headers that vLLM's own span is begun under, where the engine was started with ``otlp_traces_endpoint``.
        """
        self._load.count_request()
        request_class = ChatCompletionRequest if kind == "chat" else CompletionRequest
        try:
            request = request_class(**body)
        except ValidationError as error:
            yield [{"error": _refused(error)}]
            return
        # The engine reads nothing of the caller's HTTP request but these headers.
        raw = RawRequestInfo(headers=trace) if trace and self._traces_itself else None
        stream = await (self.chat(request, raw) if kind == "chat" else self.completions(request, raw))
        async with aclosing(stream) as items:
            async for item in items:
                yield [_plain(part) for part in (item if isinstance(item, list) else [item])]


def _plain(part: Any) -> Any:
    if isinstance(part, str):
        return part
    error = getattr(part, "error", None)
    if error is None:
        return {"error": {"message": f"The engine sent a {type(part).__name__}.", "code": 502}}
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}


def _refused(error: ValidationError) -> dict[str, Any]:
    fault = error.errors(include_url=False, include_input=False)[0]
    return {"message": str(fault["msg"]), "type": "invalid_request_error", "param": None, "code": 400}
