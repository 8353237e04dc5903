"""Priority classes of requests: which there are, what they bring along, and what is said of others."""

from __future__ import annotations

import time
from typing import Any

import pytest
from gateway_site import SETTINGS, Site

from app.config.gateway import GatewayConfig
from app.errors import ConfigError

CLASSES = {
    "interactive": {"weight": 4},
    "batch": {"weight": 1, "enginePriority": 10, "timeoutSeconds": 300},
    "nightly": {"weight": 0.5, "enginePriority": 20, "maxQueued": 5},
}


def configured(**settings: Any) -> GatewayConfig:
    return GatewayConfig.parse({**SETTINGS, "priorities": CLASSES, **settings}, "gateway")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", {"stream": True}),
        ("/v1/completions", {"prompt": "once"}),
    ],
)
@pytest.mark.parametrize(
    ("named", "engine_priority", "seconds"), [("batch", 10, 300), ("nightly", 20, 120), (None, 0, 120)]
)
async def test_a_class_reaches_the_job_with_its_rank_and_deadline(
    site: Site, path: str, body: dict[str, Any], named: str | None, engine_priority: int, seconds: float
) -> None:
    site.config = configured()
    asked = {} if named is None else {"priority": named}
    assert (await site.ask(path, **body, **asked)).status_code == 200
    assert (site.job.priority, site.job.engine_priority) == (named or "interactive", engine_priority)
    assert site.job.deadline - time.monotonic() == pytest.approx(seconds, abs=5)


async def test_a_request_s_own_deadline_goes_before_that_of_its_class(site: Site) -> None:
    site.config = configured()
    await site.ask(priority="batch", timeout_seconds=7)
    assert site.job.deadline - time.monotonic() == pytest.approx(7, abs=5)


async def test_requests_that_name_no_class_get_the_default_one(site: Site) -> None:
    site.config = configured(defaultPriority="nightly")
    for path, body in (("/v1/chat/completions", {}), ("/generate", {"prompt": "hi"})):
        await site.ask(path, **body)
        assert site.job.priority == "nightly"
        assert site.observed[-1].priority == "nightly"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("named", ["urgent", "", "Batch", "x" * 5000])
async def test_an_unknown_class_is_refused_with_the_names_that_there_are(site: Site, path: str, named: str) -> None:
    site.config = configured()
    reply = await site.ask(path, priority=named, **({} if path.endswith("chat/completions") else {"prompt": "hi"}))
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "priority")
    assert error["message"] == "priority: must be one of 'interactive', 'batch' or 'nightly'."


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"defaultPriority": "urgent"}, "defaultPriority names 'urgent'"),
        ({"priorities": {"interactive": {"weight": 0}}}, "priorities.interactive.weight"),
        ({"priorities": {"interactive": {"maxQueued": -1}}}, "priorities.interactive.maxQueued"),
        ({"priorities": {"interactive": {"timeoutSeconds": 601}}}, "priorities.interactive.timeoutSeconds"),
        ({"priorities": {"interactive": {"enginePriority": 1.5}}}, "priorities.interactive.enginePriority"),
        ({"priorities": {"interactive": {}, "a b": {}}}, "a b"),
        ({"priorities": {}}, "defaultPriority"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_key(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        configured(**settings)
