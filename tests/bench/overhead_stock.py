"""Ray Serve LLM's stock OpenAI ingress and stock server, over the fake engine and over the engine of Baton's model.

The classes are the stock ones; only their imports happen where they run (the stock builder imports the engine in one
more process), and the routes are bound to an instance, which spares the stock side a dependency per request.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

from app.deployments.light_generator import LightGenerator
from app.testing.engine import FakeEngine

_UNLIMITED = int(1e9)  # what the stock builder sets


class StockIngress:
    """``OpenAiIngress`` with its own FastAPI application and middleware."""

    def __init__(self, servers: dict[str, Any], elsewhere: dict[str, str]) -> None:
        self._servers = servers | {model: _Elsewhere(application) for model, application in elsewhere.items()}

    async def __serve_build_asgi_app__(self) -> Any:
        """Build the application that ``make_fastapi_ingress`` would."""
        gc.disable()
        from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
        from ray.llm._internal.serve.core.ingress.ingress import DEFAULT_ENDPOINTS, OpenAiIngress, init
        from ray.serve.llm import LLMConfig

        gc.enable()
        gc.freeze()
        cards = {}
        for model in self._servers:
            config = LLMConfig(model_loading_config={"model_id": model}, accelerator_type=None)
            cards[model] = to_model_metadata(model, config)
        ingress = OpenAiIngress(self._servers, cards)
        application = init()
        for name, route in DEFAULT_ENDPOINTS.items():
            route(application)(getattr(ingress, name))
        return application


class FakeServer:
    """The stock ``LLMServer`` with the fake engine in it."""

    async def __init__(self, model: str, fake: dict[str, Any]) -> None:  # type: ignore[misc]
        gc.disable()
        from ray.llm._internal.serve.core.server.llm_server import LLMServer
        from ray.serve.llm import LLMConfig

        gc.enable()
        gc.freeze()
        config = LLMConfig(model_loading_config={"model_id": model}, accelerator_type=None)
        self._server = LLMServer.sync_init(config, engine_cls=lambda config: None)
        self._server.engine = FakeLLM(fake)

    async def chat(self, request: Any, raw_request_info: Any = None) -> Any:
        """Answer as the stock server does."""
        return await self._server.chat(request, raw_request_info)


class FakeLLM:
    """The shipped fake engine under the stock engine's protocol."""

    def __init__(self, fake: dict[str, Any]) -> None:
        self._engine = FakeEngine(**fake)

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[str]:
        """Yield SSE strings."""
        async for items in self._engine.generate("chat", request.model_dump(exclude_unset=True)):
            for item in items:
                yield item


class SharedEngine(LightGenerator):
    """Baton's engine deployment, which also answers the stock ingress: one engine, each with its own front."""

    async def __init__(self, llm_config: dict[str, Any]) -> None:  # type: ignore[misc]
        await super().__init__(llm_config)
        from ray.llm._internal.serve.core.server.llm_server import LLMServer
        from ray.serve.llm import LLMConfig

        stock = {key: value for key, value in llm_config.items() if key != "experimental_configs"}
        self._stock = LLMServer.sync_init(LLMConfig(**stock))
        self._stock.engine = self._server.engine

    async def chat(self, request: Any, raw_request_info: Any = None) -> Any:
        """Answer as the stock server does, with the stock batching interval."""
        return await self._stock.chat(request, raw_request_info)


def build_stock(args: dict[str, Any]) -> Any:
    """Build ingress and server over the fake engine, and models of other applications. Import path for Serve."""
    from ray import serve

    plain = {"max_ongoing_requests": _UNLIMITED, "ray_actor_options": {"num_cpus": 0.1}}
    server = serve.deployment(FakeServer).options(name="server", **plain).bind(args["model"], args["fake"])
    ingress = serve.deployment(serve.ingress()(StockIngress)).options(name="ingress", **plain)
    return ingress.bind({args["model"]: server}, args["elsewhere"])


def build_shared_model(args: dict[str, Any]) -> Any:
    """Build a model application whose engine both sides use. Import path for Serve."""
    from ray import serve

    return serve.deployment(SharedEngine).options(name="generator", ray_actor_options={"num_cpus": 1}).bind(args)


class _Elsewhere:
    """A handle to another application's engine, found at first use as in Baton's gateway."""

    def __init__(self, application: str) -> None:
        self._application = application

    def options(self, **options: Any) -> Any:
        """Return the handle with options; the stock ingress calls this once per model and keeps the result."""
        from ray import serve

        return serve.get_deployment_handle("generator", self._application, _check_exists=False).options(**options)
