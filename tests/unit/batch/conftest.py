"""A gateway over the shipped fake pipeline, asked as batches ask it."""

import httpx
import pytest

from app.api.application import build_api
from app.batch.gateway_way import GatewayAsker
from app.config.gateway import GatewayConfig
from app.testing.pipeline import FakePipeline

SETTINGS = {"models": {"smol": {}}, "profiles": {"default": {"model": "smol"}, "other": {"model": "smol"}}}


class Site:
    """The gateway: ``pipeline`` is scripted, ``asker`` asks it."""

    def __init__(self):
        self.pipeline = FakePipeline()
        config = GatewayConfig.parse(SETTINGS, "gateway")
        app = build_api(lambda: self.pipeline, lambda: config)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://gateway")
        self.asker = GatewayAsker(self.client, "batch", "run")


@pytest.fixture
async def site():
    found = Site()
    async with found.client:
        yield found
