"""What callers of Serve's proxy get where it has no answer from the gateway: hand-made proxies, as Serve's would be."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable
from typing import Any

import pytest

from app.api.proxy_errors import ProxyErrorMiddleware

EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
OURS = (b"x-content-type-options", b"nosniff")
PLAIN = (b"content-type", b"text/plain; charset=utf-8")
SERVES_ID = (b"x-request-id", b"r-1")


async def ask(
    app: Any,
    path: str = "/v1/models",
    give_up: Callable[[], bool] = lambda: False,
    wait: float = 60,
    header: tuple[bytes, bytes] = (b"accept", b"*/*"),
) -> Any:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope: Any = {"type": "http", "method": "POST", "path": path, "headers": [SERVES_ID, header]}
    try:
        await ProxyErrorMiddleware(app, give_up, wait)(scope, receive, send)
    except ValueError as error:
        sent.append(error)
    return sent


def proxy(*messages: Any, error: Exception | None = None) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    return app


def start(status: int, *headers: tuple[bytes, bytes]) -> Any:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, more: bool = False) -> Any:
    return {"type": "http.response.body", "body": data, "more_body": more}


def refusal(sent: Any) -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
    begin, only = sent
    headers = dict(begin["headers"])
    assert len(headers) == len(begin["headers"])
    assert int(headers[b"content-length"]) == len(only["body"])
    assert not only.get("more_body")
    return begin["status"], headers, json.loads(only["body"])["error"]


async def test_silence_becomes_a_503_in_openais_shape() -> None:
    status, headers, error = refusal(await ask(proxy()))
    assert (status, headers[b"retry-after"], headers[b"content-type"]) == (503, b"5", b"application/json")
    assert headers[b"x-request-id"] == b"r-1"
    assert error.keys() == {"message", "type", "param", "code", "stage"}
    assert (error["code"], error["stage"], error["param"]) == ("stage_unavailable", "gateway", None)
    assert "stopped" in error["message"]


@pytest.mark.parametrize("began", [[], [body(b"data: 1\n\n", more=True)]])
async def test_a_stream_that_breaks_off_ends_with_one_error_event(began: list[Any]) -> None:
    sent = await ask(proxy(start(200, EVENTS, OURS), *began))
    assert sent[: 1 + len(began)] == [start(200, EVENTS, OURS), *began]
    event, end = sent[1 + len(began) :]
    assert end == body(b"")
    assert event["more_body"]
    assert event["body"].startswith(b"data: ")
    assert event["body"].endswith(b"\n\n")
    assert event["body"].count(b"\n") == 2
    assert json.loads(event["body"][6:])["error"]["code"] == "stage_unavailable"


@pytest.mark.parametrize(
    "messages",
    [
        [start(200, EVENTS, OURS), body(b"data: 1\n\n", more=True), body(b"")],
        [start(200, (b"content-type", b"application/json"), (b"content-length", b"2"), OURS), body(b"{}")],
        [start(200, (b"content-type", b"application/octet-stream"), OURS), body(b"a", more=True)],
        [start(404, PLAIN, (b"content-length", b"9"), SERVES_ID), body(b"Not Found")],
        [start(404, PLAIN, OURS, SERVES_ID), body(b"ours")],
        [start(200, PLAIN, SERVES_ID), body(b"ok")],
    ],
    ids=["stream", "json", "broken bytes", "another application's", "the gateway's", "not an error"],
)
async def test_replies_of_applications_are_left_alone(messages: list[Any]) -> None:
    assert await ask(proxy(*messages)) == messages


@pytest.mark.parametrize(
    ("own", "status", "code"),
    [(404, 503, "stage_unavailable"), (408, 504, "deadline_exceeded"), (503, 503, "stage_unavailable")],
)
async def test_the_proxys_own_plain_text_becomes_openais_shape(own: int, status: int, code: str) -> None:
    found, headers, error = refusal(await ask(proxy(start(own, PLAIN, SERVES_ID), body(b"Path '/' not found."))))
    assert (found, error["code"], headers[b"x-request-id"]) == (status, code, b"r-1")
    assert (b"retry-after" in headers) is (status == 503)


@pytest.mark.parametrize("path", ["/-/healthz", "/-/routes"])
async def test_what_probes_read_is_left_alone(path: str) -> None:
    messages = [start(503, PLAIN, SERVES_ID), body(b"This node is being drained.")]
    assert await ask(proxy(*messages), path) == messages


@pytest.mark.parametrize("target", ["*", "example.org:443", "", "v1/models"])
async def test_a_target_that_is_no_path_is_the_callers_fault(target: str) -> None:
    plain = proxy(start(404, PLAIN, SERVES_ID), body(b"Path '*' not found."))
    status, headers, error = refusal(await ask(plain, target))
    assert (status, error["code"], headers[b"x-request-id"]) == (404, "not_found", b"r-1")
    assert b"retry-after" not in headers
    assert f"'{target}'" in error["message"]


@pytest.mark.parametrize("name", [b"x-session-id", b"X_Session_Id", b"serve_multiplexed_model_id", b"traceparent"])
async def test_a_header_that_the_proxy_cannot_decode_is_the_callers_fault(name: bytes) -> None:
    status, _, error = refusal(await ask(proxy(error=ValueError("reached")), header=(name, b"caf\xe9")))
    assert (status, error["code"], error["param"]) == (400, "invalid_request", name.decode().lower())
    assert error["message"].endswith("is not UTF-8: send plain text in it.")


async def test_other_headers_and_utf_8_pass() -> None:
    answered = [start(200), body(b"ok")]
    for header in ((b"user-agent", b"caf\xe9"), (b"x-session-id", "café".encode())):
        assert await ask(proxy(*answered), header=header) == answered


async def test_a_fault_of_the_proxy_is_answered_and_raised() -> None:
    *sent, raised = await ask(proxy(error=ValueError("bytes of a header")))
    status, _, error = refusal(sent)
    assert (status, error["code"]) == (500, "internal_error")
    assert "bytes of a header" not in error["message"]
    assert isinstance(raised, ValueError)


async def test_other_protocols_pass() -> None:
    seen: list[Any] = []

    async def app(*connection: Any) -> None:
        seen.extend(connection)

    connection: Any = ({"type": "websocket"}, object(), object())
    await ProxyErrorMiddleware(app, lambda: False, 60)(*connection)
    assert seen == list(connection)


class Assignment:
    """A proxy whose request waits for a replica, as Serve's does: who drops it looks it up in the request's context."""

    def __init__(self, accepted: bool) -> None:
        self.accepted = accepted
        self.dropped = asyncio.Event()
        self.request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="")

    def give_up(self) -> bool:
        waits = self.request.get() == "this one" and not self.accepted
        if waits:
            self.dropped.set()
        return waits

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.request.set("this one")
        await asyncio.create_task(receive())
        if self.accepted:
            await asyncio.sleep(0.05)
            for message in (start(200, OURS), body(b"late")):
                await send(message)
        else:
            await asyncio.wait_for(self.dropped.wait(), 10)


async def test_a_request_that_no_replica_takes_is_refused_when_the_wait_is_over() -> None:
    assignment = Assignment(accepted=False)
    status, headers, error = refusal(await ask(assignment.app, give_up=assignment.give_up, wait=0.01))
    assert (status, headers[b"retry-after"], error["code"]) == (503, b"5", "stage_unavailable")
    assert "No replica" in error["message"]


async def test_a_request_that_a_replica_has_may_take_longer_than_the_wait() -> None:
    assignment = Assignment(accepted=True)
    sent = await ask(assignment.app, give_up=assignment.give_up, wait=0.01)
    assert sent == [start(200, OURS), body(b"late")]
