"""A guardrail term changes with `helm upgrade` while people ask."""

import time

import pytest
import yaml

from tests.e2e.kube import LIVE, cluster_name, pods, restarts, wait_for
from tests.e2e.release import SHAPE, Callers, since

pytestmark = pytest.mark.core

TERM = "quokkaberry"


def with_term():
    guardrail = yaml.safe_load(SHAPE.read_text())["settings"]["guardrail"]
    guardrail["policies"]["default"]["terms"].append({"terms": [TERM], "category": "plants"})
    return {"settings": {"guardrail": guardrail}}


def test_a_term_is_enforced_within_half_a_minute(release):
    question = f"Tell me about the {TERM}."
    assert release.chat(question).status_code == 200
    before = (cluster_name(), release.replicas(), [pod["metadata"]["uid"] for pod in pods()], restarts())

    with Callers(lambda: release.chat("Say hello."), count=2) as callers:
        wait_for("people who ask", lambda: callers.statuses[200] >= 2, 120)
        began = time.monotonic()
        release.upgrade(with_term(), wait=False)
        wait_for("the term enforced", lambda: release.chat(question).status_code == 400, 180, every=0.2)
        took = since(began)
        answered = callers.statuses[200]
        wait_for("answers after the change", lambda: callers.statuses[200] >= answered + 4, 120)

    assert took <= LIVE, f"it took {took:.1f} s from the start of helm upgrade"
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])
    assert (cluster_name(), release.replicas(), [pod["metadata"]["uid"] for pod in pods()], restarts()) == before

    release.upgrade(wait=False)
    wait_for("the term gone", lambda: release.chat(question).status_code == 200, 180)
    release.wait()
