import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.ops import smoke

CITED = {"citations": [{"mark": 1, "id": "a#0", "collection": "docs", "source": "guardrail.md"}]}


def event(data):
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


def answer(*pieces, baton):
    chunks = [event({"choices": [{"index": 0, "delta": {"content": piece}}]}) for piece in pieces]
    return b"".join([*chunks, event({"choices": [], "baton": baton}), event("[DONE]")])


class Gateway(ThreadingHTTPServer):
    """Answers from a list, the last one for ever, and shows a metrics page."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ready = 200
        self.answers = [answer("It ", "blocks.", baton=CITED)]
        self.page = 'ray_baton_requests_total{status="200"} 1.0\n'

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self):
        status, text = (self.server.ready, "not ready") if self.path == "/readyz" else (200, self.server.page)
        self._send(status, "text/plain", text.encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answers = self.server.answers
        self._send(200, "text/event-stream", answers.pop(0) if len(answers) > 1 else answers[0])

    def _send(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def gateway(monkeypatch):
    monkeypatch.setattr(smoke, "_PAUSE_SECONDS", 0.01)
    server = Gateway()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with contextlib.closing(server.socket):
        yield server
        server.shutdown()
        thread.join()


def run(gateway, *more, seconds="1"):
    arguments = ["--url", gateway.url, "--metrics-url", f"{gateway.url}/metrics", "--question", "What?"]
    return smoke.main([*arguments, "--expect-citation", "--timeout-seconds", seconds, *more])


def test_a_gateway_that_works(gateway, capsys):
    assert run(gateway) == 0
    told = capsys.readouterr().out
    assert "It blocks." in told
    assert "cites guardrail.md" in told
    assert "ray_baton_requests_total" in told


def test_documents_may_still_be_on_their_way(gateway):
    gateway.answers.insert(0, answer("I ", "know nothing.", baton={}))
    assert run(gateway, seconds="10") == 0


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (answer("It ", "blocks.", baton={}), "cites no passage"),
        (answer("It blocks.", baton=CITED), "in one piece"),
        (answer(baton=CITED), "is empty"),
    ],
)
def test_what_is_wrong_with_an_answer_is_told(gateway, capsys, answers, words):
    gateway.answers = [answers]
    assert run(gateway, seconds="0.1") == 1
    assert words in capsys.readouterr().err


def test_missing_metrics_are_told(gateway, capsys):
    gateway.page = "ray_other 1\n"
    assert run(gateway, seconds="0.1") == 1
    assert "ray_baton_requests_total" in capsys.readouterr().err


def test_a_gateway_that_is_not_ready_is_told(gateway, capsys):
    gateway.ready = 503
    assert run(gateway, seconds="0.1") == 1
    assert "was not ready within 0 s: it answers 503" in capsys.readouterr().err
