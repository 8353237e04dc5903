"""A model's deployment that imports the engine where it runs, and nowhere else."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any


class LightGenerator:
    """Holds a :class:`app.deployments.generator.GeneratorServer`; ``llm_config`` is ``LLMConfig`` as JSON."""

    async def __init__(self, llm_config: dict[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        # The imports make millions of objects that live for ever: without the collector they take 16 s instead of 20.
        gc.disable()
        from ray.serve.llm import LLMConfig

        from app.deployments.generator import GeneratorServer

        gc.enable()
        gc.freeze()
        self._server = GeneratorServer.sync_init(LLMConfig(**llm_config))
        await self._server.start()

    async def generate(
        self, kind: str, body: dict[str, Any], trace: dict[str, str] | None = None
    ) -> AsyncIterator[list[Any]]:
        """Stream an answer; see :meth:`app.deployments.generator.GeneratorServer.generate`."""
        async with aclosing(self._server.generate(kind, body, trace)) as items:
            async for item in items:
                yield item

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what the engine is busy with."""
        found: dict[str, float] = await self._server.record_autoscaling_stats()
        return found

    async def check_health(self) -> None:
        """Raise when the engine is dead, so that Serve replaces the replica."""
        await self._server.check_health()

    async def __del__(self) -> None:
        """Stop the engine's own processes."""
        server = getattr(self, "_server", None)
        if server is not None:
            await server.__del__()
