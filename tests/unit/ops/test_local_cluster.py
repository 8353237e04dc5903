"""What the local cluster tells of Serve's view, and that waiting for Serve ends when asked to stop."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.config.local import ROOT, load
from app.ops import local_cluster
from app.ops.local_cluster import LocalCluster
from tests.unit.ops.serving import Answers, serving

HEALTH = "A replica's health check failed. This deployment will be UNHEALTHY until the replica recovers.\nTraceback"


class Serve(ThreadingHTTPServer):
    """Serve's REST API: tells one view after another, the last one for ever; silent until ``answering`` is set."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.views = [{}]
        self.asked = threading.Event()
        self.answering = threading.Event()


class Handler(Answers, BaseHTTPRequestHandler):
    def reply_json(self, body):
        self.reply(json.dumps(body).encode())

    def do_GET(self):
        self.server.asked.set()
        self.server.answering.wait(30)
        views = self.server.views
        self.reply_json({"applications": views.pop(0) if len(views) > 1 else views[0]})

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self.server.answering.wait(30)
        self.reply_json({})


@pytest.fixture
def serve():
    with serving(Serve()) as server:
        yield server
        server.answering.set()


@pytest.fixture
def cluster(serve, tmp_path):
    config = load(ROOT / "config" / "local.yaml", tmp_path)
    machine = config.machine.model_copy(update={"dashboard_port": serve.server_port})
    return LocalCluster(config.model_copy(update={"machine": machine}), tmp_path)


def application(status, message="", **deployments):
    return {"status": status, "message": message, "deployments": deployments}


def watched(cluster, serve, monkeypatch, *views):
    """Return what is told while Serve's view goes through ``views``."""
    monkeypatch.setattr(local_cluster, "_WATCH_SECONDS", 0.01)
    serve.views = [{"pipeline": view} for view in views]
    serve.answering.set()
    stop, said = threading.Event(), []

    def say(text):
        said.append(text)
        if len(said) == len(views):
            stop.set()

    cluster.watch(say, stop)
    return said


def test_an_unhealthy_application_says_why_and_when_it_is_over(cluster, serve, monkeypatch):
    well = {"status": "HEALTHY", "message": ""}
    ill = {"status": "UNHEALTHY", "message": HEALTH}
    said = watched(
        cluster,
        serve,
        monkeypatch,
        application("RUNNING", generator=well),
        application("UNHEALTHY", "generator is ill", gateway=well, generator=ill),
        application("RUNNING", generator=well),
    )
    assert said == [
        "application pipeline: running",
        f"application pipeline: unhealthy: generator: {HEALTH.splitlines()[0]}",
        "application pipeline: running, healthy again",
    ]


@pytest.mark.parametrize(
    ("message", "told"), [("", "no reason given"), ("x" * 9000, "x" * 500), ("\n the first\nthe second", "the first")]
)
def test_a_reason_is_one_line_of_bounded_length(cluster, serve, monkeypatch, message, told):
    said = watched(cluster, serve, monkeypatch, application("UNHEALTHY", message))
    assert said == [f"application pipeline: unhealthy: {told}"]


@pytest.mark.parametrize("method", ["deploy_engines_first", "wait_until_running", "watch"])
def test_waiting_for_a_serve_that_does_not_answer_ends_at_once(cluster, serve, monkeypatch, method):
    monkeypatch.setattr(local_cluster, "_WATCH_SECONDS", 0.01)
    stop, said = threading.Event(), []

    def ask_to_stop():
        assert serve.asked.wait(10)
        stop.set()

    threading.Thread(target=ask_to_stop).start()
    began = time.monotonic()
    getattr(cluster, method)(said.append, stop)
    assert time.monotonic() - began < 5
    assert said == []
