"""The gateway under test: the real application over the shipped fake pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx
from fastapi import FastAPI

from app.api.application import build_api
from app.api.context import Observed
from app.config.gateway import GatewayConfig
from app.jobs import ChatJob
from app.testing.pipeline import FakePipeline

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

SETTINGS: dict[str, Any] = {
    "models": {"smol": {"contextTokens": 8192, "description": "Tiny."}, "tooled": {"tools": True}},
    "profiles": {
        "default": {"model": "smol", "systemPrompt": "Be brief.", "sampling": {"temperature": 0.5, "maxTokens": 64}},
        "docs": {"model": "smol", "retrieval": {"enabled": True, "collections": ["probe"], "topK": 3}},
        "tools": {"model": "tooled", "policy": "strict"},
        "shopping": {
            "model": "smol",
            "responseFormat": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
        },
    },
}


@dataclass
class Site:
    """A gateway over a fake pipeline, with everything that a test wants to look at."""

    pipeline: FakePipeline
    config: GatewayConfig
    observed: list[Observed] = field(default_factory=list)

    def __post_init__(self) -> None:
        current["site"] = self
        self.app = shared_app()
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://gateway")

    async def ask(self, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
        if path.endswith("chat/completions"):
            body = {"messages": [{"role": "user", "content": "hi"}]} | body
        return await self.client.post(path, json=body)

    def limit(self, **limits: Any) -> None:
        self.config = self.config.model_copy(update={"limits": self.config.limits.model_copy(update=limits)})

    @property
    def outcomes(self) -> list[tuple[str, int, str]]:
        return [(seen.route, seen.status, seen.profile) for seen in self.observed]

    @property
    def job(self) -> ChatJob:
        return self.pipeline.jobs[-1]


current: dict[str, Site] = {}


@cache
def shared_app() -> FastAPI:
    """One application for all tests: it asks for pipeline and settings with each request, so tests can swap them."""
    return build_api(
        lambda: current["site"].pipeline,
        lambda: current["site"].config,
        lambda seen: current["site"].observed.append(seen),
    )
