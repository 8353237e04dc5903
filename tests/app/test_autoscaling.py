"""Engines that come and go with the load: woken by a request, added under load, taken away around streams."""

import json
import re
import threading
import time
from pathlib import Path

import httpx
import pytest
import yaml

from app.config.deployment_options import check_options
from app.config.local import ROOT
from tests.app.baton import START_SECONDS, Baton, events
from tests.app.fake_cluster import flood, running

PAGE = (ROOT / "docs" / "autoscaling.md").read_text("utf-8")
#: Serve hears of load every 10 s by default.
QUICK = {
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
}
ENGINE = {"seconds_per_token": 0.1, "words": ["word"] * 400}
POLICY = {
    "policy_function": "app.deployments.engine_policy:EnginePolicy",
    "policy_kwargs": {"targets": {"running": 3}},
}


@pytest.fixture(scope="module")
def site(models, tmp_path_factory):
    data = tmp_path_factory.mktemp("scaled")
    (data / "models").symlink_to(models)
    with running(data, QUICK) as found:
        yield found


def scaled(least, patience=90.0):
    """Return a change: the engine has ``least`` to two replicas, a stopping one ``patience`` seconds."""

    def change(raw):
        for stage in ("guardrail", "retriever", "assembler", "postprocessor"):
            raw["pipeline"]["stages"][stage] = {"placement": "gateway"}
        scaling = {"min_replicas": least, "max_replicas": 2, "initial_replicas": 1, "policy": POLICY}
        scaling |= {"upscale_delay_s": 0.5, "downscale_delay_s": 1, "downscale_to_zero_delay_s": 1}
        scaling |= {"look_back_period_s": 1, "upscaling_factor": 2}
        options = {"max_ongoing_requests": 4, "max_queued_requests": 64, "autoscaling_config": scaling}
        raw["models"][0]["options"] = options | {"graceful_shutdown_timeout_s": patience}

    return change


def engines(site):
    return len(site.pids("generator", "model-fake"))


def body(tokens, **given):
    return {"messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens} | given


@pytest.mark.timeout(START_SECONDS)
def test_a_model_that_sleeps_is_woken_by_a_request_and_says_when_to_come_back(site):
    site.deploy(ENGINE, scaled(0))
    Baton.wait_for(lambda: engines(site) == 0, 60, "the model sleeps")
    assert site.http.get("/readyz").status_code == 200
    refused = site.http.post("/v1/chat/completions", json=body(1, timeout_seconds=0.2))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
    assert refused.json()["error"]["code"] == "stage_unavailable"
    assert site.http.get("/readyz").status_code == 200, "a model that wakes takes nobody else's service away"
    Baton.wait_for(lambda: engines(site) == 0, 60, "the model sleeps again")
    began = time.monotonic()
    answered = site.http.post("/v1/chat/completions", json=body(1, timeout_seconds=60))
    print(f"\na sleeping model answered after {time.monotonic() - began:.1f} s")
    assert answered.status_code == 200
    assert answered.json()["choices"][0]["message"]["content"]


@pytest.mark.timeout(START_SECONDS)
def test_an_engine_that_is_busy_gets_a_second_one(site):
    site.deploy(ENGINE, scaled(1))
    statuses = set()

    def ask(number):
        statuses.add(site.http.post("/v1/chat/completions", json=body(10)).status_code)

    loading = threading.Thread(target=flood, args=(8, 20, ask))
    loading.start()
    Baton.wait_for(lambda: engines(site) == 2, 20, "a second engine")
    loading.join()
    assert statuses == {200}
    Baton.wait_for(lambda: engines(site) == 1, 30, "the second engine goes")


class Streams:
    """Streamed answers in threads of their own."""

    def __init__(self, site):
        self._site = site
        self.threads = []
        self.endings = []

    def begin(self, count, tokens):
        asked = body(tokens, stream=True, ignore_eos=True, timeout_seconds=300)
        for _ in range(count):
            self.threads.append(threading.Thread(target=self._read, args=(asked,)))
            self.threads[-1].start()

    def _read(self, asked):
        with httpx.Client(base_url=self._site.cluster.url, timeout=120) as client:
            self.endings.append(events(client.post("/v1/chat/completions", json=asked).content)[-1])

    def join(self):
        for thread in self.threads:
            thread.join()


def streams_on_two_engines(site, tokens):
    """Begin a long stream, and two more when load has brought a second engine; wait for the end of the load.

    Returns the streams and the process ids of both engines.
    """
    streams, load = Streams(site), Streams(site)
    streams.begin(1, tokens)
    load.begin(5, 100)
    Baton.wait_for(lambda: engines(site) == 2, 30, "a second engine")
    both = set(site.pids("generator", "model-fake"))
    streams.begin(2, tokens)
    load.join()
    return streams, both


@pytest.mark.timeout(START_SECONDS)
def test_an_engine_finishes_its_streams_before_it_goes(site):
    site.deploy(ENGINE, scaled(1))
    streams, _ = streams_on_two_engines(site, 300)
    streams.join()
    assert streams.endings == [b"[DONE]"] * 3
    Baton.wait_for(lambda: engines(site) == 1, 60, "the second engine goes")


@pytest.mark.timeout(START_SECONDS)
def test_a_stream_does_not_keep_an_engine_for_ever(site):
    site.deploy(ENGINE, scaled(1, patience=2.0))
    streams, both = streams_on_two_engines(site, 500)
    Baton.wait_for(lambda: engines(site) == 1, 45, "an engine goes although streams run")
    (gone,) = both - set(site.pids("generator", "model-fake"))
    Baton.wait_for(lambda: not Path(f"/proc/{gone}").exists(), 20, "its process ends long before the streams would")
    streams.join()
    assert len(streams.endings) == 3
    assert all(end == b"[DONE]" or json.loads(end)["error"]["message"] for end in streams.endings)


def test_what_the_page_shows_is_taken():
    for shown in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S):
        options = yaml.safe_load(shown)["models"]["llama"]["options"]
        assert check_options(options)["autoscaling_config"]["max_replicas"] == 4
