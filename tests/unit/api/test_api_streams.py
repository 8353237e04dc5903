"""Streams: their shape, faults on both sides of the first byte, and that nothing runs on after a hang-up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import orjson
import pytest
from gateway_site import Site

from app.api.hangup import ClientGone, run_unless_gone
from app.api.sse import frame
from app.errors import EngineFailed, GuardrailBlocked, Overloaded, StageUnavailable
from app.testing.pipeline import FakePipeline

CHAT = "/v1/chat/completions"
SLOW = {"seconds_per_word": 0.005, "words": ("word",) * 2000}


def events(reply: httpx.Response) -> list[Any]:
    assert reply.headers["content-type"].startswith("text/event-stream")
    parts = reply.content.split(b"\n\n")
    assert parts.pop() == b""
    return [part.removeprefix(b"data: ").decode() for part in parts]


def chunks(reply: httpx.Response) -> list[Any]:
    found = events(reply)
    assert found.count("[DONE]") == 1
    assert found.pop() == "[DONE]"
    return [json.loads(event) for event in found]


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("usage", [False, True])
async def test_a_stream_has_openais_shape(site: Site, n: int, usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    got = chunks(await site.ask(stream=True, n=n, **options))
    choices = [choice for chunk in got for choice in chunk["choices"]]
    assert [choice["delta"].get("role") for choice in choices[:n]] == ["assistant"] * n
    for index in range(n):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in own) == "Baton answers from its documents."
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["stop"]
    assert len({(chunk["id"], chunk["model"], chunk["object"]) for chunk in got}) == 1
    assert [chunk for chunk in got if "usage" in chunk] == (got[-1:] if usage else [])
    if usage:
        assert (got[-1]["choices"], got[-1]["usage"]["completion_tokens"]) == ([], 6 * n)
    with_choices = [chunk for chunk in got if chunk["choices"]]
    assert [chunk for chunk in got if "baton" in chunk] == with_choices[-1:]
    assert with_choices[-1]["baton"]["variant"] == {"profile": "default", "model": "smol"}


async def test_tool_calls_and_logprobs_are_streamed(site: Site) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    got = chunks(await site.ask(stream=True, model="tooled", tools=[tool], tool_choice="required"))
    assert [c["delta"]["tool_calls"][0]["id"] for g in got for c in g["choices"] if "tool_calls" in c["delta"]] == [
        "call-0"
    ]
    assert got[-1]["choices"][0]["finish_reason"] == "tool_calls"
    got = chunks(await site.ask(stream=True, logprobs=True, max_tokens=1))
    assert [c["logprobs"]["content"][0]["token"] for g in got for c in g["choices"] if c["logprobs"]] == ["Baton"]


async def test_logprobs_stay_inside_unless_asked_for(site: Site) -> None:
    for stream in (False, True):
        assert '"logprob"' not in (await site.ask(stream=stream)).text
        assert '"token_logprobs"' not in (await site.ask("/v1/completions", prompt="hi", stream=stream)).text


async def test_completions_and_generate_stream_too(site: Site) -> None:
    got = chunks(await site.client.post("/v1/completions", json={"prompt": "hi", "stream": True, "logprobs": 0}))
    assert "".join(chunk["choices"][0]["text"] for chunk in got) == "Baton answers from its documents."
    assert "baton" in got[-1]
    got = chunks(await site.client.post("/generate", json={"prompt": "hi", "stream": True}))
    assert "".join(event["text"] for event in got) == "Baton answers from its documents."
    assert [event["status"] for event in got] == ["running"] * (len(got) - 1) + ["ok"]
    assert got[-1].keys() == {"status", "text", "tokens", "confidence", "baton"}


@pytest.mark.parametrize("text", ["a\nb", "a\r\n\r\nb", "\x85\u2028\u2029", "\u0000", "炸弹", "\\u2028", 'data: "'])
def test_a_frame_is_one_line_for_every_reader(text: str) -> None:
    data = frame({"text": text})
    assert data.endswith(b"\n\n")
    lines = data.decode().splitlines()
    assert lines[1:] == [""]
    assert orjson.loads(lines[0].removeprefix("data: ")) == {"text": text}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (GuardrailBlocked("no", "guardrail"), 400, None),
        (EngineFailed("gone", "generator"), 502, None),
        (Overloaded("full", "retriever", retry_after_seconds=7), 503, "7"),
        (StageUnavailable("away", "retriever"), 503, "2"),
        (RuntimeError("the prompt was: secret"), 500, None),
    ],
)
async def test_faults_before_the_first_byte_have_a_status(
    make_site: Callable[..., Site], stream: bool, fault: Exception, status: int, retry_after: str | None
) -> None:
    site = make_site(fail_before=fault)
    reply = await site.ask(stream=stream)
    assert reply.status_code == status
    assert reply.headers.get("retry-after") == retry_after
    assert reply.json()["error"].keys() == {"message", "type", "param", "code", "stage"}
    assert "secret" not in reply.text
    assert site.outcomes == [(CHAT, status, "default")]
    assert site.pipeline.running == 0


@pytest.mark.parametrize("fault", [EngineFailed("gone", "generator"), RuntimeError("the prompt was: secret")])
async def test_faults_after_the_first_byte_are_one_event(
    make_site: Callable[..., Site], fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(fail_after=fault, fail_after_words=2)
    reply = await site.ask(stream=True)
    got = events(reply)
    assert reply.status_code == 200
    assert "[DONE]" not in got
    assert ["error" in json.loads(event) for event in got] == [False] * (len(got) - 1) + [True]
    assert "secret" not in reply.text + caplog.text
    assert site.outcomes == [(CHAT, 502 if isinstance(fault, EngineFailed) else 500, "default")]


async def test_the_log_tells_where_it_broke_and_not_what_was_said(
    make_site: Callable[..., Site], caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(fail_before=RuntimeError("the prompt was: secret"))
    reply = await site.client.post(
        CHAT, json={"messages": [{"role": "user", "content": "secret"}]}, headers={"x-request-id": "id-1"}
    )
    assert "id-1" in reply.json()["error"]["message"]
    assert "RuntimeError" in caplog.text
    assert "pipeline.py" in caplog.text
    assert "id-1" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("stream", [False, True])
async def test_the_deadline_holds_even_for_a_pipeline_that_forgets_it(
    make_site: Callable[..., Site], stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.hangup._GRACE_SECONDS", 0.01)
    site = make_site(delay_seconds=30)
    reply = await site.ask(stream=stream, timeout_seconds=0.001)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    told = "The request's deadline has passed: ask for less, or raise timeout_seconds."
    assert reply.json()["error"]["message"] == told
    assert (site.pipeline.running, site.pipeline.closed) == (0, 1)


async def test_the_deadline_ends_a_stream_with_an_event(
    make_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.hangup._GRACE_SECONDS", 0.01)
    site = make_site(**SLOW)
    got = events(await site.ask(stream=True, timeout_seconds=0.01, max_tokens=2000))
    assert json.loads(got[-1])["error"]["code"] == "deadline_exceeded"
    assert (site.pipeline.running, site.pipeline.closed) == (0, 1)


class Caller:
    """A raw ASGI caller that can hang up."""

    def __init__(self, site: Site, body: dict[str, Any]) -> None:
        self.app = site.app
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.tells = True
        self.raw = orjson.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2000} | body)
        self.asked = False

    async def receive(self) -> dict[str, Any]:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": self.raw, "more_body": False}
        await (self.gone if self.tells else asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.gone.is_set():
            raise OSError("gone")
        self.sent.append(message)

    def start(self) -> asyncio.Task[None]:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": CHAT, "raw_path": CHAT.encode(), "query_string": b"", "root_path": "", "state": {},
            "headers": [(b"content-type", b"application/json")], "client": ("c", 1), "server": ("s", 80),
        }  # fmt: skip
        return asyncio.create_task(self.app(scope, self.receive, self.send))


async def until(claim: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not claim():  # noqa: ASYNC110 - what is waited for are plain attributes
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("how", ["hang-up", "cancelled"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("when", ["before the first word", "in the middle"])
async def test_a_hang_up_stops_the_pipeline(make_site: Callable[..., Site], how: str, stream: bool, when: str) -> None:
    site = make_site(**(SLOW if when == "in the middle" else {"delay_seconds": 30}))
    caller = Caller(site, {"stream": stream})
    task = caller.start()
    await until(lambda: len(caller.sent) > 3 if stream and when == "in the middle" else site.pipeline.running)
    if how == "cancelled":
        task.cancel()
    caller.gone.set()
    await until(lambda: site.pipeline.closed == 1)
    assert site.pipeline.running == 0
    await asyncio.wait([task])
    assert site.outcomes == [(CHAT, 499, "default")]
    assert task.cancelled() == (how == "cancelled")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_whose_line_broke_without_notice_is_no_fault(
    make_site: Callable[..., Site], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(seconds_per_word=0.001)
    caller = Caller(site, {"stream": stream})
    caller.tells = False
    task = caller.start()
    await until(lambda: site.pipeline.running)
    caller.gone.set()
    await task
    assert (site.pipeline.running, site.pipeline.closed) == (0, 1)
    assert site.outcomes == [(CHAT, 499, "default")]
    assert not caplog.text


async def test_a_slow_clean_up_is_waited_for(make_site: Callable[..., Site]) -> None:
    class Slow(FakePipeline):
        cleaned = False

        async def chat(self, job: Any) -> AsyncIterator[Any]:
            self.running = 1
            try:
                await asyncio.sleep(30)
                yield
            finally:
                await asyncio.sleep(0.02)
                self.cleaned = True

    site = make_site()
    site.pipeline = slow = Slow()
    caller = Caller(site, {"stream": True})
    task = caller.start()
    await until(lambda: slow.running)
    caller.gone.set()
    await task
    assert slow.cleaned


async def test_a_pipeline_that_stops_without_a_word_is_a_fault(make_site: Callable[..., Site]) -> None:
    class Silent(FakePipeline):
        async def chat(self, job: Any) -> AsyncIterator[Any]:
            return
            yield

    site = make_site()
    site.pipeline = Silent()
    for stream in (False, True):
        assert (await site.ask(stream=stream)).status_code == 500


async def test_finished_work_wins_over_a_hang_up() -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def quick() -> int:
        return 3

    async def slow() -> None:
        await asyncio.sleep(30)

    assert await run_unless_gone(gone, quick()) == 3  # type: ignore[arg-type]
    with pytest.raises(ClientGone):
        await run_unless_gone(gone, slow())  # type: ignore[arg-type]
