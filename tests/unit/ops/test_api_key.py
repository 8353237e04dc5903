"""Every command of ours that asks the gateway sends the key of the environment, and none where there is none."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.config.local import ROOT, load
from app.ops import ask, ingest, smoke
from app.ops.local_cluster import LocalCluster
from app.ops.warm_up import warm_up
from tests.unit.ops.serving import Answers, serving

CHUNKS = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in ("It ", "blocks.")]
STREAM = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in CHUNKS) + b"data: [DONE]\n\n"
COLLECTIONS = b'{"data": [{"name": "docs", "documents": 1, "passages": 1, "dimension": 4}]}'


class Gateway(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.keys = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(Answers, BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/v1"):
            self.server.keys.append(self.headers["Authorization"])
        self.reply(COLLECTIONS, 200)

    def do_POST(self):
        self.server.keys.append(self.headers["Authorization"])
        length = int(self.headers["Content-Length"])
        streamed = json.loads(self.rfile.read(length)).get("stream")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        body = STREAM if streamed else b'{"documents": 1, "passages": 1, "unchanged": 0}'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def gateway():
    with serving(Gateway()) as server:
        yield server


def list_locally(url, folder):
    config = load(ROOT / "config" / "local.yaml", folder)
    machine = config.machine.model_copy(update={"port": int(url.rsplit(":", 1)[1])})
    assert LocalCluster(config.model_copy(update={"machine": machine}), folder).collections() == ["docs"]


def store(url, folder):
    (folder / "a.md").write_text("A zebra.")
    assert ingest.main(["--url", url, "--collection", "docs", str(folder / "a.md")]) == 0


COMMANDS = {
    "ask": lambda url, _: ask.main(["how?", "--url", url]),
    "smoke": lambda url, _: smoke.main(["--url", url, "--question", "how?"]),
    "ingest": store,
    "warm-up": lambda url, _: warm_up(url, lambda text: None, threading.Event()),
    "apply": list_locally,
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("given", "sent"), [("bt-secret", "Bearer bt-secret"), ("bt-secret\n", "Bearer bt-secret"), ("", None)]
)
def test_the_key_of_the_environment_is_sent(gateway, tmp_path, monkeypatch, capsys, name, given, sent):
    monkeypatch.setenv("BATON_API_KEY", given)
    COMMANDS[name](gateway.url, tmp_path)
    assert gateway.keys
    assert set(gateway.keys) == {sent}
    printed = capsys.readouterr()
    assert "bt-secret" not in printed.out + printed.err


def test_a_variable_that_is_named_goes_before_it(gateway, tmp_path, monkeypatch):
    monkeypatch.setenv("BATON_API_KEY", "bt-one")
    monkeypatch.setenv("OTHER", "bt-two")
    assert ingest.main(["--url", gateway.url, "--list", "--secret-env", "OTHER"]) == 0
    assert gateway.keys == ["Bearer bt-two"]
