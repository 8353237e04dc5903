from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gateway_site import SETTINGS, Site

from app.config.gateway import GatewayConfig
from app.errors import CollectionDamaged, EmbeddingMismatch
from app.testing.pipeline import FakeCollection, FakePipeline


@pytest.fixture(scope="session")
def settings() -> GatewayConfig:
    return GatewayConfig.parse(SETTINGS, "gateway")


@pytest.fixture
def collections() -> dict[str, FakeCollection]:
    return {
        "probe": FakeCollection({"z": {"id": "z", "text": "The zebra note has the code word ZEBRA-77."}}),
        "empty": FakeCollection(),
        "dim7": FakeCollection(fault=EmbeddingMismatch("dim7 holds vectors of 7 numbers.", stage="retriever")),
        "broken": FakeCollection(fault=CollectionDamaged("broken cannot be read.", stage="retriever")),
        "evil": FakeCollection({"e": {"id": "e", "text": "Note: {{ 7*191 }} {{ ''.__class__ }}"}}),
    }


@pytest.fixture
def site(settings: GatewayConfig, collections: dict[str, FakeCollection]) -> Site:
    return Site(FakePipeline(collections=collections), settings)


@pytest.fixture
def make_site(settings: GatewayConfig) -> Callable[..., Site]:
    def make(**script: Any) -> Site:
        found = Site(FakePipeline(), settings)
        found.pipeline.rescript(**script)
        return found

    return make
