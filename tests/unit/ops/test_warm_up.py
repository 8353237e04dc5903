"""The warm-up asks once, tells a failure, and never keeps the start from going on."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.ops.warm_up import warm_up
from tests.unit.ops.serving import Answers, serving


class Gateway(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.body, self.seconds = 200, b"{}", 0.0
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(Answers, BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        time.sleep(self.server.seconds)
        self.reply(self.server.body, self.server.status)


@pytest.fixture
def gateway():
    with serving(Gateway()) as server:
        yield server


def test_one_question_is_asked_under_the_default_profile(gateway):
    said = []
    warm_up(gateway.url, said.append, threading.Event())
    assert said == ["warming up with one answer"]
    ((path, body),) = gateway.asked
    assert path == "/v1/chat/completions"
    assert not body.keys() & {"model", "profile", "rag"}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (503, b'{"error": {"message": "The queue is full."}}', "503: The queue is full."),
        (500, b"broken", "500"),
        (404, b"[]", "404"),
    ],
)
def test_a_refusal_is_told_and_no_more(gateway, status, body, reason):
    said = []
    gateway.status, gateway.body = status, body
    warm_up(gateway.url, said.append, threading.Event())
    assert said[1] == f"the warm-up gave no answer ({reason}): the first question will take longer"


def test_no_gateway_and_a_slow_one_are_told(gateway):
    said = []
    warm_up("http://127.0.0.1:9", said.append, threading.Event())
    gateway.seconds = 0.3
    warm_up(gateway.url, said.append, threading.Event(), limit=0.05)
    assert "ConnectError" in said[1]
    assert "none within" in said[3]


def test_stopping_does_not_wait_for_the_answer(gateway):
    gateway.seconds = 1.0
    stop = threading.Event()
    stop.set()
    began = time.monotonic()
    warm_up(gateway.url, lambda text: None, stop)
    assert time.monotonic() - began < 0.8
