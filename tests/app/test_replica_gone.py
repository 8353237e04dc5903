"""A replica killed in mid-load: what callers notice of it, and for how long."""

import threading
import time

import httpx
import pytest

from tests.app.baton import START_SECONDS
from tests.app.fake_cluster import STAGES, flood, running

ENGINE = {"seconds_per_token": 0.01, "words": ["word"] * 40, "max_ongoing_requests": 64}
CALLERS = 12
#: When the replica dies, and how long callers go on asking.
KILL_AFTER_SECONDS, LOAD_SECONDS = 2.0, 10.0
#: What a question may take longer than usual because a replica died before it came.
NOTICED_SECONDS = 0.5


@pytest.fixture(scope="module")
def site(models, tmp_path_factory):
    data = tmp_path_factory.mktemp("gone")
    (data / "models").symlink_to(models)
    with running(data) as found:
        yield found


class Load:
    """Callers that ask without a pause. ``answers`` holds (begin, end, status, code) of each."""

    def __init__(self, site):
        self.site = site
        self.answers = []
        self.killed = 0.0

    def ask(self, number):
        body = {"messages": [{"role": "user", "content": f"zebra {number}"}], "max_tokens": 5}
        began = time.monotonic()
        try:
            reply = self.clients[number].post("/v1/chat/completions", json=body | {"rag": {"collection": "notes"}})
            status, code = reply.status_code, None if reply.is_success else reply.json()["error"]["code"]
        except httpx.TransportError as error:
            status, code = 0, type(error).__name__
        self.answers.append((began, time.monotonic(), status, code))

    def run(self, deployment):
        """Load the gateway, and kill one replica of the deployment meanwhile."""
        self.site.wait_for_two(deployment)
        self.clients = [httpx.Client(base_url=self.site.cluster.url, timeout=60) for _ in range(CALLERS)]

        def kill():
            self.site.kill_one(deployment)
            self.killed = time.monotonic()

        timer = threading.Timer(KILL_AFTER_SECONDS, kill)
        timer.start()
        flood(CALLERS, LOAD_SECONDS, self.ask)
        timer.join()
        for client in self.clients:
            client.close()

    @property
    def silence(self):
        """Seconds from the kill to the end of the first answer to a question that was asked after it."""
        ends = [end for began, end, status, _ in self.answers if began > self.killed and status == 200]
        return min(ends) - self.killed

    @property
    def usual(self):
        """Median seconds of an answer before the kill."""
        before = sorted(end - began for began, end, _, _ in self.answers if end < self.killed)
        return before[len(before) // 2]

    def failed(self):
        return [(status, code) for _, _, status, code in self.answers if status != 200]

    def slowest(self):
        return max(end - began for began, end, _, _ in self.answers)

    def told(self, what):
        print(
            f"\n{what} killed under {CALLERS} callers: {len(self.answers)} questions, {len(self.failed())} failed; "
            f"first answer to a question asked after the kill {self.silence * 1000:.0f} ms after it (an answer takes "
            f"{self.usual * 1000:.0f} ms otherwise), slowest answer {self.slowest() * 1000:.0f} ms"
        )


@pytest.mark.timeout(START_SECONDS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_s_replica_that_dies_costs_no_request(site, stage):
    site.deploy(ENGINE)
    site.index("notes")
    load = Load(site)
    load.run(stage)
    load.told(f"a replica of the {stage}")
    assert load.failed() == []
    assert len(load.answers) > 2 * CALLERS
    assert load.silence < NOTICED_SECONDS + load.usual


@pytest.mark.timeout(START_SECONDS)
def test_another_gateway_goes_on_answering(site):
    def two_gateways(raw):
        raw["pipeline"]["stages"]["gateway"]["options"] = {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.1}}

    site.deploy(ENGINE, two_gateways)
    site.index("notes")
    load = Load(site)
    load.run("gateway")
    load.told("a replica of the gateway")
    # What the dead gateway had in hand is lost, and told as such: its callers' connections end at Serve's proxy.
    assert {code for _, code in load.failed()} <= {"stage_unavailable"}
    assert len(load.failed()) <= CALLERS
    assert load.silence < NOTICED_SECONDS + load.usual


@pytest.mark.timeout(START_SECONDS)
def test_an_engine_s_replica_that_dies_costs_only_answers_that_had_begun(site):
    """Two engines whose first token takes a second: questions that wait for it go to the other engine."""

    def two_engines(raw):
        raw["models"][0]["options"] = {"num_replicas": 2}

    site.deploy(ENGINE | {"seconds_per_token": 1.0}, two_engines)
    site.wait_for_two("generator", "model-fake")
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    replies = []
    with httpx.Client(base_url=site.cluster.url, timeout=60) as client:
        threads = [
            threading.Thread(target=lambda: replies.append(client.post("/v1/chat/completions", json=asked)))
            for _ in range(CALLERS)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        site.kill_one("generator", "model-fake")
        for thread in threads:
            thread.join()
    assert [reply.status_code for reply in replies] == [200] * CALLERS
