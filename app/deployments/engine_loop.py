"""The engine loop's deployments: the loop with its HTTP surface, and the splicer."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from fastapi import FastAPI

from app.admission import Admission
from app.apps.engine_loop.api import ServedLoop, build_loop_api
from app.apps.engine_loop.contract import STAGE, StepEngine
from app.apps.engine_loop.hooks import Hook, StepMeter, load_hooks
from app.apps.engine_loop.loop import EngineLoop
from app.apps.engine_loop.prompts import LoopAssembler
from app.apps.engine_loop.response_cache import ResponseCache
from app.apps.engine_loop.service import LoopService, LoopStages
from app.apps.engine_loop.splicing import Part, Spliced, Splicer
from app.config.answers import AssemblerConfig, ModelWindow
from app.config.engine_loop import EngineLoopSettings, EngineLoopShape
from app.config.guardrail import GuardrailConfig
from app.deployments import serve_log
from app.deployments.known_errors import quieten
from app.deployments.live_settings import ClusterKept, LiveSettings, lasting_settings
from app.deployments.runner import GuardrailRunner, StageRunner, settle
from app.errors import InvalidRequest, StageUnavailable
from app.handles import LocalCall, RemoteCall
from app.keys.ring import Keys
from app.metrics import Metrics, RayMetrics
from app.notes import note_request
from app.stages.guardrail import Guardrail
from app.traces import Carrier, Traces


class EngineLoopServer:
    """Deployment ``engine_loop``: engine, loop, guardrail and assembler in one process, behind the loop's own routes.

    ``splicer`` is the handle of the deployment ``splicer``, where prompts may be tensors.
    """

    async def __init__(self, shape: dict[str, Any], splicer: Any = None) -> None:  # type: ignore[misc]  # Serve awaits it
        self._shape = shape_of = EngineLoopShape.parse(shape, "args")
        self._metrics: Metrics = RayMetrics()
        self._traces = Traces(STAGE)
        self._settings: EngineLoopSettings | None = None
        self._live = LiveSettings(STAGE, self._take, self._metrics, lasting_settings)
        self._keys = Keys(self._metrics, ClusterKept("keys"))
        window = ModelWindow(
            tokenizer=shape_of.tokenizer or shape_of.source,
            context_tokens=shape_of.context_tokens,
            chat_template=shape_of.chat_template,
            local_files_only=shape_of.local_files_only,
        )
        self._guardrail = GuardrailRunner(Guardrail(GuardrailConfig()), shape_of.threads)
        self._assembler = StageRunner(LoopAssembler(shape_of.model, window), shape_of.threads)
        await self._guardrail.start()
        await self._assembler.start()
        caching = shape_of.cache.enabled
        hooks: list[Hook] = [StepMeter(), *load_hooks(shape_of.hooks)]
        hooks += [ResponseCache(shape_of.cache)] if caching else []
        self._loop = EngineLoop(self._engine, hooks, shape_of.most_requests, self._metrics, shape_of.max_step_seconds)
        with serve_log.kept():  # the loop makes the engine, and vLLM its logs
            await self._loop.start()
        self._service = LoopService(
            shape_of.model,
            self._loop,
            LoopStages(
                self._call("guardrail", self._guardrail),
                self._call("assembler", self._assembler),
                None if splicer is None else RemoteCall("splicer", splicer, self._metrics, traces=self._traces),
            ),
            self._metrics,
            self._traces,
            caching=caching,
        )

    def _engine(self) -> StepEngine:
        from app.apps.engine_loop.vllm_engine import VllmEngine

        return VllmEngine(self._shape.engine_arguments())

    def _call(self, name: str, runner: StageRunner) -> LocalCall:
        most = self._shape.most_requests
        return LocalCall(name, runner, Admission(name, most, most, self._metrics), self._traces)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        around = ServedLoop(self._shape.model, self._shape.context_tokens, self._service, self._current)
        return build_loop_api(around, partial(note_request, self._metrics), self._keys, self._traces, behind_proxy=True)

    def _current(self) -> EngineLoopSettings:
        if self._settings is None:
            raise StageUnavailable("The engine loop has no settings yet; try again shortly.", STAGE, None, 1)
        return self._settings

    async def reconfigure(self, user_config: Any) -> None:
        """Take new settings as a whole; refused ones leave the old in force."""
        if await self._live.reconfigure(user_config):
            settle()

    async def _take(self, user_config: Any) -> None:
        settings = EngineLoopSettings.parse(user_config, "settings")
        keys = await self._keys.load(settings.auth)
        await self._guardrail.configure(settings.guardrail)
        longest = min(settings.sampling.max_tokens or settings.limits.max_tokens, settings.limits.max_tokens)
        await self._assembler.configure(
            AssemblerConfig(default_max_tokens=longest, min_answer_tokens=min(128, longest))
        )
        await asyncio.to_thread(self._traces.configure, settings.traces)
        self._keys.use(keys)
        self._settings = settings

    def check_health(self) -> None:
        """Raise when the engine is dead or hangs, so that Serve replaces the replica."""
        self._loop.check()

    async def __del__(self) -> None:
        """Stop the engine; Serve calls this when a replica stops."""
        loop, traces = getattr(self, "_loop", None), getattr(self, "_traces", None)
        if loop is not None:
            await loop.stop()
        if traces is not None:
            await asyncio.to_thread(traces.close)


class SplicerServer:
    """Deployment ``splicer``: writes prompts in the model's embedding space; its results go by reference."""

    def __init__(self, shape: dict[str, Any]) -> None:
        from app.apps.engine_loop.embedding_matrix import load_matrix

        quieten()
        parsed = EngineLoopShape.parse(shape, "args")
        matrix, dtype = load_matrix(parsed.source, parsed.embeddings.weight)
        self._splicer = Splicer(matrix, dtype, parsed.embeddings.cached_passages, parsed.embeddings.cached_bytes)

    async def manage(
        self, method: str, parts: tuple[Part, ...], *, trace: Carrier | None = None
    ) -> tuple[Spliced, float]:
        """Return the spliced prompt and the time at which it was done. The one ``method`` is ``splice``.

        The caller's span is all there is of it in a ``trace``: this process makes none.
        """
        del trace
        if method != "splice":
            raise InvalidRequest(f"The splicer has no method {method!r}.", "splicer")
        spliced = await asyncio.to_thread(self._splicer.splice, parts)
        return spliced, time.time()
