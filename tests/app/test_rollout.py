"""Rollouts on a running pipeline: promoted, gone on with after a crash, and rolled back on a made fault."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest
import yaml

from app.metrics import TABLE
from app.ops.rollout.signals import FIRST_TOKEN, GROUNDING, LATENCY, REQUESTS
from tests.app.baton import ROOT

DOCS = (ROOT / "docs" / "rollout.md").read_text("utf-8")
#: Ray hands metrics to the page every ten seconds: a step is seen in them a little later.
PLAN = {
    "name": "test",
    "profile": "plain",
    "stable": "current",
    "canary": "candidate",
    "steps": [{"share": 30, "seconds": 5}, {"share": 60, "seconds": 5}],
    "gates": [
        {"gate": "errors", "bound": 0.05, "minRequests": 5},
        {"gate": "latencyP95", "bound": 20_000, "minRequests": 5},
    ],
    "windowSeconds": 60,
    "pollSeconds": 2,
    "holdSeconds": 120,
}
SHORT = {"temperature": 0, "maxTokens": 2}
#: The made fault: answers that take many times as long.
SLOW = {"nCandidates": 2, "sampling": {"temperature": 0.7, "maxTokens": 64}}


def routed(**candidate):
    """Return a change that gives the profile `plain` two variants, of which the second has no traffic."""

    def change(raw):
        variants = {
            "current": {"weight": 1, "sampling": SHORT},
            "candidate": {"weight": 0, "sampling": SHORT, **candidate},
        }
        raw["settings"]["routing"] = {"plain": {"variants": variants}}

    return change


class Callers:
    """Two people who ask the profile all the time: which variants answered, and what went wrong."""

    def __init__(self, baton):
        self.baton = baton
        self.faults, self._answers = [], []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go) for _ in range(2)]

    def _go(self):
        body = {"model": "plain", "messages": [{"role": "user", "content": "Tell a long story."}]}
        with httpx.Client(base_url=self.baton.base, timeout=120) as client:
            while not self._stop.wait(0.2):
                asked = time.monotonic()
                answer = client.post("/v1/chat/completions", json=body)
                if answer.status_code == 200:
                    self._answers.append((asked, answer.json()["baton"]["variant"]["name"]))
                else:
                    self.faults.append(answer.text)

    @property
    def variants(self):
        """What answered so far, in the order of the questions: a slow answer comes in after those asked later."""
        return [name for _, name in sorted(self._answers)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=150)


@pytest.fixture
def rollout(baton, tmp_path):
    """The command against this pipeline: ``rollout.start("run", plan=…)``. Undoes what it did to the settings."""

    class Rollout:
        def __init__(self):
            self.options = ["--local", "--data", str(baton.data), "--dashboard-port", str(baton.dashboard_port)]
            self.started = []
            self.options += ["--metrics-port", str(baton.metrics_port)]

        def start(self, command, plan=None, *more):
            arguments = [sys.executable, "-m", "app.ops.rollout", command, *self.options, *more]
            if plan:
                path = tmp_path / "plan.yaml"
                path.write_text(yaml.safe_dump(plan))
                arguments += ["--plan", str(path)]
            process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.started.append(process)
            return process

        def run(self, command, plan=None, *more, seconds=420):
            process = self.start(command, plan, *more)
            said, _ = process.communicate(timeout=seconds)
            return process.returncode, said

    found = Rollout()
    yield found
    for process in found.started:
        process.kill()
        with process:
            pass
    (baton.data / "rollout.json").unlink(missing_ok=True)
    baton.deploy()


def test_gates_judge_by_metrics_that_carry_the_variant():
    for name in (REQUESTS, LATENCY, FIRST_TOKEN, GROUNDING):
        assert {"profile", "variant"} <= set(TABLE[name.removeprefix("ray_")].labels), name


@pytest.mark.timeout(600)
def test_a_canary_is_promoted_by_a_runner_that_was_killed_and_one_that_went_on(baton, rollout):
    baton.deploy(routed())
    with Callers(baton) as callers:
        first = rollout.start("run", PLAN)
        baton.wait_for(lambda: "candidate" in callers.variants, 120, "a canary with traffic")
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        code, said = rollout.run("run", PLAN)
        assert code == 0, said
        assert "going on with test" in said
        done = len(callers.variants)
        baton.wait_for(lambda: len(callers.variants) > done + 10, 60, "answers after the rollout")
    assert callers.faults == []
    assert set(callers.variants[-5:]) == {"candidate"}
    assert set(callers.variants[:3]) == {"current"}
    assert "weight: 1" in said.split("back:\n\n")[1]
    code, said = rollout.run("status")
    assert (code, said.count("CanaryStep")) == (0, 2)
    assert "CanaryPromoted" in said
    assert rollout.run("run", PLAN)[0] == 0


@pytest.mark.timeout(600)
def test_a_canary_with_a_made_fault_is_rolled_back(baton, rollout):
    baton.deploy(routed(**SLOW))
    slow = {"gate": "latencyP95", "bound": 4, "relative": True, "minRequests": 3}
    plan = {**PLAN, "steps": [{"share": 50, "seconds": 300}], "gates": [PLAN["gates"][0], slow]}
    with Callers(baton) as callers:
        code, said = rollout.run("run", plan)
        assert code == 1, said
        assert "CanaryRolledBack: latencyP95 is broken at a share of 50 %" in said
        done = len(callers.variants)
        baton.wait_for(lambda: len(callers.variants) > done + 12, 120, "answers after the rollback")
    assert callers.faults == []
    assert "candidate" in callers.variants
    assert set(callers.variants[-5:]) == {"current"}
    assert rollout.run("abort")[0] == 2


@pytest.mark.timeout(300)
def test_weights_that_somebody_sends_meanwhile_stop_it(baton, rollout):
    baton.deploy(routed())
    process = rollout.start("run", {**PLAN, "steps": [{"share": 50, "seconds": 600}]})
    with Callers(baton) as callers:
        baton.wait_for(lambda: "candidate" in callers.variants, 120, "a canary with traffic")
        baton.deploy(routed(weight=0.25))
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 3, said
        assert "Somebody else changed" in said
        assert rollout.run("abort")[0] == 0


@pytest.mark.timeout(600)
def test_the_commands_of_the_page_do_what_they_say(baton, rollout):
    (shown,) = re.findall(r"^```sh\n(.*?)^```", DOCS, re.M | re.S)
    baton.deploy(routed())
    with Callers(baton):
        for line in shown.strip().splitlines():
            command = [sys.executable, *shlex.split(line)[1:], *rollout.options[1:]]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.strip()
