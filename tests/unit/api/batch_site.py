"""Gateways that keep files and batches in one folder, and OpenAI's client for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
from gateway_site import SETTINGS

from app.api.application import build_api
from app.batch.worker import BatchWorker
from app.config.gateway import GatewayConfig
from app.keys.file import KeysFile, hash_of
from app.keys.ring import Keys, Loaded
from app.metrics import MemoryMetrics
from app.testing.pipeline import FakePipeline

ALL = {"models": ["*"], "profiles": ["*"], "collections": ["*"]}
ENTRIES = {"ada": {"scopes": ALL, "tenant": "ada"}, "bob": {"scopes": ALL}, "blind": {}}


def secret(key: str) -> str:
    return f"bt-secret-of-{key}"


def keys_of(*names: str) -> Loaded:
    raw = [{"id": name, "secrets": [{"hash": hash_of(secret(name))}], **ENTRIES[name]} for name in names]
    return Loaded(None, KeysFile.model_validate({"keys": raw}))


class Gateway:
    """One gateway process over a folder that others may share."""

    def __init__(self, folder: Any, *keys: str, **batches: Any) -> None:
        raw = SETTINGS | {"batches": {"folder": str(folder)} | batches}
        self.config = GatewayConfig.parse(raw, "gateway")
        self.pipeline = FakePipeline()
        self.keys = Keys(MemoryMetrics())
        if keys:
            self.keys._take(keys_of(*keys))
        self.metrics = MemoryMetrics()
        self.worker = BatchWorker(self.metrics, self.keys, look_seconds=0.02, rest_seconds=0.1)
        self.app = build_api(lambda: self.pipeline, lambda: self.config, keys=self.keys)
        self.worker.serve(self.app)

    def client(self, key: str = "ada") -> openai.AsyncOpenAI:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        http = httpx.AsyncClient(transport=transport, base_url="http://gateway")
        return openai.AsyncOpenAI(base_url="http://gateway/v1", api_key=secret(key), http_client=http, max_retries=0)


@asynccontextmanager
async def working(folder: Any, *keys: str, **batches: Any):
    gateway = Gateway(folder, *keys, **batches)
    gateway.worker.configure(gateway.config.batches)
    try:
        yield gateway
    finally:
        await gateway.worker.close()


def lines(count: int, **body: Any) -> bytes:
    body = {"messages": [{"role": "user", "content": "hi"}]} | body
    rows = (
        {"custom_id": f"q{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for number in range(count)
    )
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


async def made(client: openai.AsyncOpenAI, content: bytes, **more: Any) -> Any:
    file = await client.files.create(file=("rows.jsonl", content), purpose="batch")
    asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h"} | more
    return await client.batches.create(input_file_id=file.id, **asked)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until(client: openai.AsyncOpenAI, batch_id: str, *states: str) -> Any:
    async with asyncio.timeout(10):
        while (batch := await client.batches.retrieve(batch_id)).status not in states:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return batch


async def rows_of(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(line) for line in (await client.files.content(file_id)).text.splitlines()]
