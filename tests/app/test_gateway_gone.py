"""What callers see while no replica of the gateway answers: before it is deployed, when it dies, until it is back."""

import json
import os
import signal
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import yaml

from app.config.local import ROOT, LocalConfig, serve_config
from app.ops.local_cluster import ENVIRONMENT, LocalCluster
from tests.app.baton import LOCAL, START_SECONDS, Baton, events
from tests.app.brief_wait import WAIT_SECONDS

PORT = 28280
QUESTION = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 400}
ENGINE = {"seconds_per_token": 0.05, "words": ["word"] * 400}


def configuration(data):
    """The shipped pipeline in the gateway's process alone, over the fake engine."""
    raw = yaml.safe_load(LOCAL.read_text().replace("{data}", str(data)).replace("{root}", str(ROOT)))
    raw["machine"] = {"port": PORT, "metricsPort": PORT + 1, "dashboardPort": PORT + 2}
    raw["models"] = [{"application": "model-fake", "engine": {}}]
    raw["pipeline"]["models"] = {"fake": {"application": "model-fake", "tokenizer": str(data / "models" / "smollm2")}}
    raw["pipeline"]["embedder"] = {"kind": "fake", "dimension": 64}
    raw["pipeline"]["stages"] = {"gateway": {"options": {"ray_actor_options": {"num_cpus": 0.5}}}} | {
        stage: {"placement": "gateway"} for stage in ("guardrail", "retriever", "assembler", "postprocessor")
    }
    raw["settings"]["profiles"] = {"default": {"model": "fake"}}
    raw["collections"] = {}
    return LocalConfig.parse(raw, "test")


@pytest.fixture
def data(models, tmp_path):
    (tmp_path / "models").symlink_to(models)
    return tmp_path


@pytest.fixture
def cluster(data):
    """A cluster without applications, whose proxies wait briefly."""
    running = LocalCluster(configuration(data), data)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}.items():
            patch.setenv(name, value)
        patch.setenv("RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "tests.app.brief_wait:middlewares")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own import
            import ray.serve  # noqa: F401
        running.start()
        try:
            yield running
        finally:
            running.stop()


def send(cluster, data, names):
    """Deploy those of the applications, and wait until they run."""
    whole = serve_config(configuration(data))
    whole["applications"][0] |= {"import_path": "app.testing.engine:build_fake_model", "args": ENGINE}
    whole["applications"] = [one for one in whole["applications"] if one["name"] in names]
    cluster._put(whole)
    for name in names:
        cluster.wait_until_running(lambda text: None, threading.Event(), only=name)


def assert_unavailable(reply):
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "5"), reply.text
    assert reply.headers.get_list("x-request-id") == [reply.request.headers["x-request-id"]]
    error = reply.json()["error"]
    assert (error["code"], error["stage"], error["type"]) == ("stage_unavailable", "gateway", "api_error")
    return error["message"]


def kill_the_gateway(cluster):
    (replica,) = cluster.statuses()["pipeline"]["deployments"]["gateway"]["replicas"]
    os.kill(replica["pid"], signal.SIGKILL)


def wait_for_an_answer(http):
    """Ask until the pipeline answers."""
    short = QUESTION | {"max_tokens": 2}
    Baton.wait_for(lambda: http.post("/v1/chat/completions", json=short).is_success, 120, "an answer")


def raw(request):
    """What the proxy says, on the wire, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.timeout(START_SECONDS)
def test_callers_get_openais_errors_while_no_gateway_answers(cluster, data):
    http = httpx.Client(base_url=cluster.url, timeout=60, headers={"x-request-id": "r-1"})
    with http, ThreadPoolExecutor(1) as others:
        send(cluster, data, ["model-fake"])
        assert "No replica" in assert_unavailable(http.get("/v1/models"))
        send(cluster, data, ["model-fake", "pipeline"])
        wait_for_an_answer(http)

        def ask():
            return http.post("/v1/chat/completions", json=QUESTION)

        plain = others.submit(ask)
        began, body = time.monotonic(), b""
        with http.stream("POST", "/v1/chat/completions", json=QUESTION | {"stream": True}) as stream:
            killed = False
            for chunk in stream.iter_bytes():
                body += chunk
                # Whom a replica has accepted the bound on the wait does not concern.
                if not killed and time.monotonic() - began > 2 * WAIT_SECONDS:
                    kill_the_gateway(cluster)
                    killed = True
        *before, last = events(body)
        assert json.loads(last)["error"]["code"] == "stage_unavailable"
        assert not any(b"error" in event for event in before)
        assert b"[DONE]" not in before
        assert len(before) > 10
        assert "stopped before it answered" in assert_unavailable(plain.result())

        assert "No replica" in assert_unavailable(ask())
        wait_for_an_answer(http)

        # The proxy's own pages and its server's replies are as they were.
        assert (http.get("/-/healthz").text, http.get("/-/routes").json()) == ("success", {"/": "pipeline"})
        assert raw(b"HEAD /-/healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
        assert raw(b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
        assert raw(b"\x01 / HTTP/1.1\r\n\r\n").endswith(b"Invalid HTTP request received.")
