"""What is reported of a request at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from gateway_site import Site

from app.config.priorities import PriorityConfig
from app.errors import ContextLengthExceeded, DeadlineExceeded, EngineFailed, GuardrailBlocked, Overloaded


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ({}, "answered"),
        ({"fail_before": GuardrailBlocked("no")}, "blocked"),
        ({"fail_before": Overloaded("full")}, "shed"),
        ({"fail_before": DeadlineExceeded("late")}, "timeout"),
        ({"fail_before": ContextLengthExceeded("long")}, "refused"),
        ({"fail_before": EngineFailed("broke")}, "failed"),
        ({"fail_after": DeadlineExceeded("late")}, "timeout"),
    ],
)
async def test_a_request_is_reported_by_how_it_ended(
    make_site: Callable[..., Site], script: dict[str, Any], outcome: str
) -> None:
    site = make_site(**script)
    await site.ask(priority="batch", stream=True)
    (seen,) = site.observed
    assert (seen.outcome, seen.priority) == (outcome, "batch")
    assert 0 <= seen.seconds < 10


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        ({"timeout_seconds": 1}, "own_deadline"),
        ({"timeout_seconds": 60}, "timeout"),
        ({"timeout_seconds": 90}, "timeout"),
        # The class's own default counts, where it has one.
        ({"priority": "nightly", "timeout_seconds": 90}, "own_deadline"),
        ({"priority": "nightly"}, "timeout"),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", {"stream": True}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/retrieve", {"query": "hi", "profile": "docs"}),
    ],
)
async def test_a_deadline_that_the_caller_made_shorter_is_told_from_ours(
    site: Site, path: str, body: dict[str, Any], asked: dict[str, Any], outcome: str
) -> None:
    site.pipeline.rescript(fail_before=DeadlineExceeded("late"))
    site.limit(timeout_seconds=60, max_timeout_seconds=200)
    classes = {**site.config.priorities, "nightly": PriorityConfig(engine_priority=9, timeout_seconds=100)}
    site.config = site.config.model_copy(update={"priorities": classes})
    await site.ask(path, **body, **asked)
    assert site.observed[0].outcome == outcome


@pytest.mark.parametrize(("seconds", "outcome"), [(1, "own_deadline"), (None, "timeout")])
async def test_embeddings_have_deadlines_of_the_caller_too(
    make_site: Callable[..., Site], seconds: float | None, outcome: str
) -> None:
    site = make_site()
    site.pipeline.embed = AsyncMock(side_effect=DeadlineExceeded("late"))  # type: ignore[method-assign]
    await site.ask("/v1/embeddings", input="hi", **({"timeout_seconds": seconds} if seconds else {}))
    assert site.observed[0].outcome == outcome


async def test_a_request_that_is_no_question_has_no_priority(site: Site) -> None:
    await site.client.get("/nowhere")
    assert (site.observed[0].outcome, site.observed[0].priority) == ("refused", "")
