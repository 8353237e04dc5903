import contextlib
import io
import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ops import ask as cli
from tests.unit.ops.serving import serving

TEXT = "Terms change live [1]. 护栏词表可以在线修改。😀"
REPORT = {
    "citations": [
        {"mark": 2, "id": "b#0", "collection": "docs", "source": "护栏/词表.md", "score": 0.61, "start": 23, "end": 34},
        {
            "mark": 1,
            "id": "a#0",
            "collection": "docs",
            "source": "live-changes.md",
            "score": 0.7,
            "start": 0,
            "end": 22,
        },
        {
            "mark": 1,
            "id": "a#0",
            "collection": "docs",
            "source": "live-changes.md",
            "score": 0.2,
            "start": 23,
            "end": 34,
        },
    ],
    "confidence": 0.781,
    "grounding": None,
    "guardrail": [{"action": "redact", "categories": {"pii": 2}, "direction": "output", "failed_open": False}],
    "stages": {
        "postprocessor": 12.9,
        "guardrail": 1.4,
        "retriever": 38.2,
        "extra": 1.0,
        "first_token": 9.0,
        "total": 70,
    },
    "flags": {},
    "unsupported_numbers": [{"number": "1.25", "start": 0, "end": 4, "path": None}],
}


def event(data: dict[str, Any] | str) -> bytes:
    return b"data: " + (data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)).encode() + b"\n\n"


def delta(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


WHOLE = (
    event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    + b": a comment\n\n"
    + b"".join(event(delta(character)) for character in TEXT)
    + event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "baton": REPORT})
    + event({"choices": [], "usage": {"prompt_tokens": 812, "completion_tokens": 58}})
    + event("[DONE]")
)


class Script(ThreadingHTTPServer):
    """Answers every POST with the pieces it was given, each in an HTTP chunk of its own."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.headers: dict[str, str] = {"Content-Type": "text/event-stream"}
        self.pieces: list[bytes] = [WHOLE]
        self.cut_off = False
        self.interrupt = False
        self.hung_up = threading.Event()
        self.requests: list[tuple[dict[str, Any], str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Script

    def do_POST(self) -> None:
        script = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script.requests.append((body, self.headers.get("Authorization")))
        self.send_response(script.status)
        for name, value in {**script.headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in script.pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if script.interrupt:
            self._interrupt()
        elif not script.cut_off:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _interrupt(self) -> None:
        self.server.hung_up.wait(0.05)  # by then the client has read all there is and waits for more
        os.kill(os.getpid(), signal.SIGINT)
        with contextlib.suppress(ConnectionResetError):
            assert self.rfile.read(1) == b""
        self.server.hung_up.set()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def script() -> Iterator[Script]:
    with serving(Script()) as server:
        yield server


def refuse(script: Script, status: int, body: bytes, **headers: str) -> None:
    script.status, script.pieces = status, [body]
    script.headers = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_events_do_not_depend_on_where_the_bytes_are_cut(cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[start:end] for start, end in itertools.pairwise(borders)]
    assert list(cli.read_events(iter(pieces))) == list(cli.read_events(iter([WHOLE])))


def test_events_end_in_lf_or_crlf_and_join_their_data_lines() -> None:
    pieces = [b"event: x\r\ndata: a\r", b"\ndata:b\r\n", b"\r\n: c\n\ndata: d\n\ndata: never ended"]
    assert list(cli.read_events(iter(pieces))) == ["a\nb", "d"]


def test_a_streamed_answer_is_printed_with_sources_and_times(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.pieces = [WHOLE[start : start + 7] for start in range(0, len(WHOLE), 7)]
    assert cli.main(["how?", "--url", script.url + "/"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == TEXT
    assert lines[2:5] == [
        "Sources",
        "  [1] live-changes.md  docs           0.700",
        "  [2] 护栏/词表.md     docs           0.610",
    ]
    stages = [line.split()[0] for line in lines[lines.index("Stage times") + 1 :] if " ms " in line]
    assert stages == ["guardrail", "retriever", "postprocessor", "extra", "first", "total"]
    assert "confidence 0.78 · 812 tokens in, 58 out · finished: stop" in lines
    assert lines[-2:] == ["guardrail: redact in the output (pii)", "numbers that stand in no passage: 1.25"]
    assert "\x1b" not in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ([], {}),
        (["--no-retrieval"], {"rag": {"enabled": False}}),
        (
            ["--collection", "shop", "--profile", "shopping"],
            {"rag": {"enabled": True, "collection": "shop"}, "profile": "shopping"},
        ),
    ],
)
def test_options_become_request_fields(
    script: Script, arguments: list[str], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATON_API_KEY", "s3")
    assert cli.main(["wie?", "--url", script.url, *arguments]) == 0
    sent, authorization = script.requests[0]
    usual = {
        "messages": [{"role": "user", "content": "wie?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert sent == usual | fields
    assert authorization == "Bearer s3"


def test_json_is_one_object_with_everything(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["how?", "--url", script.url, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["answer"], printed["baton"], printed["finish_reason"]) == (TEXT, REPORT, "stop")
    assert printed["usage"] == {"prompt_tokens": 812, "completion_tokens": 58}
    assert 0 < printed["first_token_ms"] <= printed["total_ms"]


def test_a_refusal_is_one_sentence(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"message": "The queue is full.", "type": "overloaded_error", "code": "overloaded", "stage": "generator"}
    refuse(script, 503, json.dumps({"error": error}).encode(), Retry_After="2")
    assert cli.main(["how?", "--url", script.url]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "The queue is full. (generator, overloaded) Try again in 2 s.\n"


def test_a_missing_key_is_asked_for(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(script, 401, b'{"error": {"message": "A key is needed."}}')
    assert cli.main(["how?", "--url", script.url]) == 1
    assert capsys.readouterr().err == "A key is needed. Give a key in the environment variable BATON_API_KEY.\n"


@pytest.mark.parametrize(("status", "body"), [(502, b"<h1>Bad gateway</h1>"), (200, b"[]"), (404, b'{"detail": "no"}')])
def test_something_else_at_the_address_is_told(
    script: Script, capsys: pytest.CaptureFixture[str], status: int, body: bytes
) -> None:
    refuse(script, status, body)
    assert cli.main(["how?", "--url", script.url]) == 1
    assert "is no Baton gateway" in capsys.readouterr().err


def test_an_address_that_says_not_even_what_it_sends_is_told(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.status, script.headers, script.pieces = 405, {}, [b"no"]
    assert cli.main(["how?", "--url", script.url]) == 1
    told = capsys.readouterr().err
    assert "(it answered 405, without a Content-Type): give the address" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("ending", "cut_off", "sentence"),
    [
        (event({"error": {"message": "The engine gave up.", "code": "engine_failed"}}), False, "The engine gave up. ("),
        (b"", False, "The stream ended before the answer was complete."),
        (b"", True, "The connection broke in the middle of the answer."),
        (event("{half"), False, "The gateway sent an event that is no JSON object."),
        (event("[1]"), False, "The gateway sent an event that is no JSON object."),
    ],
)
def test_a_fault_after_the_first_byte_keeps_what_came_and_says_why(
    script: Script, capsys: pytest.CaptureFixture[str], ending: bytes, cut_off: bool, sentence: str
) -> None:
    script.pieces = [event(delta("Terms ")), event(delta("change"))] + [ending] * bool(ending)
    script.cut_off = cut_off
    assert cli.main(["how?", "--url", script.url]) == 1
    printed = capsys.readouterr()
    assert printed.out == "Terms change\n"
    assert printed.err.startswith(sentence)
    assert printed.err.count("\n") == 1


def test_no_gateway_names_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["how?", "--url", "http://127.0.0.1:9"]) == 2
    assert "make run" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["gateway", "ftp://gateway", "http://gateway:port"])
def test_a_wrong_address_is_told(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["how?", "--url", url])
    assert stopped.value.code == 2
    assert "is no address: write it like http://localhost:8000" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["  "], [], ["how?", "--collection", "docs", "--no-retrieval"]])
def test_wrong_usage_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_interrupt_closes_the_stream(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.pieces, script.interrupt = [event(delta("Terms"))], True
    assert cli.main(["how?", "--url", script.url]) == 130
    assert script.hung_up.wait(2.0)
    assert capsys.readouterr().err == "Stopped.\n"


def test_text_cannot_steer_the_terminal(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.pieces = [event(delta("a\x1b[2Jb\x07\x9bc\nd")), event("[DONE]")]
    assert cli.main(["how?", "--url", script.url]) == 0
    assert capsys.readouterr().out.startswith("a[2Jbc\nd\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert cli.Palette.of(Terminal()).paint("36", "x") == "\x1b[36mx\x1b[0m"
    assert cli.Palette.of(io.StringIO()).paint("36", "x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.Palette.of(Terminal()).paint("36", "x") == "x"


@given(st.text(max_size=30), st.integers(2, 20))
def test_a_fitted_text_takes_the_width_it_was_given(text: str, width: int) -> None:
    assert cli.cells(cli.fit(text, width)) == width
