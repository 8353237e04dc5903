"""Bodies that are no JSON, too big, too deep or of the wrong type."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import orjson
import pytest
from gateway_site import Site
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.body import read_json
from app.config.gateway import LimitsConfig
from app.errors import InvalidRequest

JSON = {"Content-Type": "application/json"}
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"  ",
        b"[1, 2]",
        b'"text"',
        b'{"messages":[',
        "\u00ff\u00fe{}".encode(),
        b"\xff\xfe{}",
        b'{"messages":[{"role":"user","content":"\xff"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"hi"}],"temperature":NaN}',
        b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"messages":' + b"[" * 100 + b"]" * 100 + b"}",
        b"[" * 200_000,
        b'{"messages":[' + b"1," * 200_000 + b"1]}",
        b'{"messages":[' + b"1," * 90_000 + b"1]}",
    ],
)
async def test_bodies_that_cannot_be_read_are_400(site: Site, raw: bytes) -> None:
    reply = await site.client.post(CHAT, content=raw, headers=JSON)
    assert reply.status_code == 400
    assert len(reply.json()["error"]["message"]) < 500


TOO_DEEP = "The request body is nested deeper than 64 levels."


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (
            b'{"max_tokens":' + b"9" * 400 + b"}",
            "The request body holds a number that is too large (line 1, column 15).",
        ),
        (b'{"temperature":\n-1e999}', "The request body holds a number that is too large (line 2, column 1)."),
        (b'{"messages":' + b"[" * 2000 + b"]" * 2000 + b"}", TOO_DEEP),
        (b'{"messages":' + b"[" * 100 + b"]" * 100 + b"}", TOO_DEEP),
        (b'{"messages":' + b'{"a":' * 2000 + b"1" + b"}" * 2001, TOO_DEEP),
        (b'{"messages":[}', "The request body is not valid UTF-8 JSON (line 1, column 14)."),
    ],
    ids=["whole", "float", "deep", "less deep", "objects", "broken"],
)
async def test_json_that_is_valid_is_not_called_otherwise(site: Site, raw: bytes, sentence: str) -> None:
    reply = await site.client.post(CHAT, content=raw, headers=JSON)
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, sentence)


async def test_a_byte_order_mark_is_passed_over(site: Site) -> None:
    raw = b'\xef\xbb\xbf{"messages":[{"role":"user","content":"hi"}]}'
    assert (await site.client.post(CHAT, content=raw, headers=JSON)).status_code == 200
    lines = b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n'
    kind = {"Content-Type": "application/x-ndjson"}
    assert (await site.client.post("/v1/collections/c/documents", content=lines, headers=kind)).json()["documents"] == 2


@pytest.mark.parametrize("coding", ["IDENTITY", "Identity", " identity"])
async def test_codings_are_the_same_in_capitals(site: Site, coding: str) -> None:
    headers = JSON | {"Content-Encoding": coding}
    reply = await site.client.post(CHAT, content=b'{"messages":[{"role":"user","content":"hi"}]}', headers=headers)
    assert reply.status_code == 200


@pytest.mark.parametrize("raw", [b"null", b"[1, 2]", b'"text"', b"5", b"false"])
@pytest.mark.parametrize(
    "path", [CHAT, "/v1/completions", "/v1/embeddings", "/generate", "/v1/collections/probe/documents"]
)
async def test_other_json_than_an_object_is_named(site: Site, path: str, raw: bytes) -> None:
    reply = await site.client.post(path, content=raw, headers=JSON)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "The request body must be a JSON object."


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_other_types_than_json_are_415(site: Site, headers: dict[str, str]) -> None:
    reply = await site.client.post(CHAT, content=b"{}", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json; charset=UTF-8", "application/vnd.x+json", None])
async def test_json_under_other_names_is_read(site: Site, kind: str | None) -> None:
    headers = {"Content-Type": kind} if kind else {}
    reply = await site.client.post(CHAT, content=b'{"messages":[{"role":"user","content":"hi"}]}', headers=headers)
    assert reply.status_code == 200


class Upload:
    """A raw ASGI caller that sends a long body and notes how much was taken before the reply and in all."""

    def __init__(self, site: Site, pieces: int, announced: int | None = None) -> None:
        self.app = site.app
        self.path = CHAT
        self.left = pieces
        self.taken = 0
        self.taken_at_reply: int | None = None
        self.status = 0
        self.ended = False
        self.headers = [(b"content-type", b"application/json")]
        if announced is not None:
            self.headers.append((b"content-length", str(announced).encode()))

    async def receive(self) -> dict[str, Any]:
        if self.left == 0:
            await asyncio.Event().wait()
        self.left -= 1
        self.taken += 1
        return {"type": "http.request", "body": b" " * 100, "more_body": self.left > 0}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["body"]:
            self.taken_at_reply = self.taken
        self.ended = self.ended or not message.get("more_body", message["type"] == "http.response.start")

    async def run(self) -> None:
        scope = {
            "type": "http", "method": "POST", "path": self.path, "raw_path": self.path.encode(), "query_string": b"",
            "root_path": "", "headers": self.headers, "server": ("s", 80), "scheme": "http", "http_version": "1.1",
        }  # fmt: skip
        await self.app(scope, self.receive, self.send)


@pytest.mark.parametrize(("announced", "taken_at_reply"), [(10_000, 0), (None, 11)])
async def test_a_body_over_the_limit_is_refused_at_once_and_read_to_its_end(
    site: Site, announced: int | None, taken_at_reply: int
) -> None:
    site.limit(max_body_bytes=1000)
    upload = Upload(site, 100, announced)
    await upload.run()
    assert (upload.status, upload.taken_at_reply, upload.taken) == (413, taken_at_reply, 100)
    assert upload.ended


@pytest.mark.parametrize("patch", [("_DRAINED_BYTES", 3000), ("_DRAINING_SECONDS", 0.01)])
async def test_reading_on_is_bounded(site: Site, patch: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"app.api.middleware.{patch[0]}", patch[1])
    site.limit(max_body_bytes=1000)
    upload = Upload(site, 100, 10_000)
    if patch[0] == "_DRAINING_SECONDS":
        upload.left = 0
    await upload.run()
    assert (upload.status, upload.taken, upload.ended) == (413, 30 if upload.left else 0, True)


class Stalled(Upload):
    """Sends a piece every few milliseconds, and from some piece on nothing any more."""

    def __init__(self, site: Site, pieces: int, pause: float) -> None:
        super().__init__(site, 1_000_000)
        self.pieces = pieces
        self.pause = pause
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if self.taken == self.pieces:
            await asyncio.Event().wait()
        await asyncio.sleep(self.pause)
        return await super().receive()

    async def send(self, message: Any) -> None:
        await super().send(message)
        self.sent.append(message)


@pytest.mark.parametrize(("pieces", "pause"), [(0, 0), (3, 0), (1_000_000, 0.005)])
@pytest.mark.parametrize("path", [CHAT, "/v1/collections/probe/documents"])
async def test_a_body_that_does_not_come_in_time_is_408(site: Site, path: str, pieces: int, pause: float) -> None:
    site.limit(body_timeout_seconds=0.05)
    caller = Stalled(site, pieces, pause)
    caller.path = path
    async with asyncio.timeout(5):
        await caller.run()
    assert (caller.status, caller.ended) == (408, True)
    assert (b"connection", b"close") in caller.sent[0]["headers"]
    error = orjson.loads(caller.sent[1]["body"])["error"]
    assert (error["code"], error["type"]) == ("request_timeout", "invalid_request_error")
    assert "within 0.05 seconds" in error["message"]


async def test_the_time_for_the_body_does_not_bound_the_answer(make_site: Any) -> None:
    site = make_site(delay_seconds=0.1)
    site.limit(body_timeout_seconds=0.02)
    assert (await site.ask()).status_code == 200


async def test_a_faulty_content_length_is_400(site: Site) -> None:
    reply = await site.client.post(CHAT, content=b"{}", headers={**JSON, "Content-Length": "-1"})
    assert reply.status_code == 400


async def test_a_megabyte_of_text_is_fine(site: Site) -> None:
    reply = await site.ask(messages=[{"role": "user", "content": "ant " * 262_144}])
    assert reply.status_code == 200


@settings(max_examples=50)
@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_refused(raw: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        read_json(raw, LimitsConfig())


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_depth_is_counted_exactly(layers: list[bool]) -> None:
    value: Any = "leaf"
    for as_object in layers:
        value = {"a": 1, "b": value} if as_object else [value, 2]
    raw = orjson.dumps(value)
    assert read_json(raw, LimitsConfig(max_json_depth=len(layers))) == value
    if len(layers) > 1:
        with pytest.raises(InvalidRequest, match="nested deeper"):
            read_json(raw, LimitsConfig(max_json_depth=len(layers) - 1))


def test_values_are_counted_across_levels() -> None:
    limits = LimitsConfig(max_json_nodes=5)
    assert read_json(b'{"a": [1, 2], "b": {"c": 3}}', limits)
    with pytest.raises(InvalidRequest, match="more than 5 values"):
        read_json(b'{"a": [1, 2], "b": {"c": 3, "d": 4}}', limits)
