from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.ingestion.targets import wait_until_ready
from app.ops import ingest
from tests.unit.ops.serving import Answers, serving


def test_waiting_is_for_a_gateway(tmp_path, capsys):
    (tmp_path / "a.md").write_text("text")
    arguments = ["--store", str(tmp_path / "s"), "--embedder", "fake", "--collection", "docs", "--wait-seconds", "5"]
    with pytest.raises(SystemExit) as ended:
        ingest.main([*arguments, str(tmp_path / "a.md")])
    assert ended.value.code == 2
    assert "--wait-seconds: only with --url" in capsys.readouterr().err


def test_a_gateway_that_never_comes_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("app.ingestion.targets.time.sleep", lambda seconds: None)
    (tmp_path / "a.md").write_text("text")
    arguments = ["--url", "http://127.0.0.1:9", "--collection", "docs", "--wait-seconds", "1"]
    assert ingest.main([*arguments, str(tmp_path / "a.md")]) == 3
    assert "was not ready within 1 s: it does not answer (ConnectError)" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "told"), [("bt-1", "Bearer bt-1"), ("bt-ü", None), (None, None)])
def test_whoever_waits_brings_the_key_that_is_told_what_is_missing(key, told):
    seen = []

    class Handler(Answers, BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            self.reply(b"{}")

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        wait_until_ready(f"http://127.0.0.1:{server.server_port}/", 5, key)
    assert seen == [("/readyz", told)]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (["--embedder", "fake"], "--embedder: only with --store; the gateway has its own"),
        (
            ["--size-tokens", "9", "--overlap-tokens", "1"],
            "--size-tokens, --overlap-tokens: only with --store; the gateway",
        ),
        (["--delete-missing"], "--delete-missing: only with --store; a gateway does not tell which documents it has"),
        (
            ["--create-empty"],
            "--create-empty: only with --store; a gateway makes a collection with its first documents",
        ),
    ],
)
def test_what_only_a_store_takes_says_why(option, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        ingest.main(["--url", "http://127.0.0.1:9", "--collection", "docs", *option, "."])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
