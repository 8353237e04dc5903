"""What is reported of a request at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gateway_site import Site

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


async def test_a_request_that_is_no_question_has_no_priority(site: Site) -> None:
    await site.client.get("/nowhere")
    assert (site.observed[0].outcome, site.observed[0].priority) == ("refused", "")
