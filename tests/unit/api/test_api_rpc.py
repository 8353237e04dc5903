"""RPCs: the same pipeline, checks and errors as over HTTP, told in gRPC's terms."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest
from fastapi import FastAPI, Request
from gateway_site import Site

from app.api.application import build_api
from app.api.rpc.service import SECONDS_LEFT, RpcService
from app.api.rpc.status import STATUSES
from app.errors import BatonError, ConfigError, DeadlineExceeded, EngineFailed, Overloaded
from app.keys.file import KeysFile, hash_of
from app.keys.ring import Keys, Loaded
from app.metrics import MemoryMetrics
from app.protos import baton_pb2 as pb


class Call:
    """A call as Serve hands it on."""

    def __init__(self, **metadata: str) -> None:
        self.metadata = [(key.replace("_", "-"), value) for key, value in metadata.items()]
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.trailing: dict[str, str] = {}

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self.metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str]]) -> None:
        self.trailing = dict(trailing_metadata)


def service(site: Site, keys: Keys | None = None) -> RpcService:
    api = build_api(lambda: site.pipeline, lambda: site.config, site.observed.append, keys=keys)
    return RpcService(api, lambda: site.config.limits.max_timeout_seconds)


@pytest.fixture
def rpc(site: Site) -> RpcService:
    return service(site)


def asked(content: str = "hi", **fields: Any) -> pb.ChatRequest:
    return pb.ChatRequest(messages=[pb.ChatMessage(role="user", content=content)], **fields)


def error_codes() -> set[str]:
    """Return the codes of all errors that may go out."""

    def below(kind: type[BatonError]) -> list[type[BatonError]]:
        return [kind, *(found for part in kind.__subclasses__() for found in below(part))]

    return {kind.code for kind in below(BatonError) if kind.__module__ == BatonError.__module__} - {ConfigError.code}


def test_every_error_has_a_status_and_the_docs_tell_it() -> None:
    table = re.findall(r"^\| (`[a-z_`, ]+`) \| `([A-Z_]+)`.* \|$", Path("docs/grpc.md").read_text("utf-8"), re.M)
    told = [(code, status) for codes, status in table for code in re.findall("[a-z_]+", codes)]
    assert dict(told) == {code: STATUSES[code].name for code in error_codes()}
    assert len(told) == len(dict(told))


def test_statuses_follow_what_a_caller_can_do() -> None:
    assert STATUSES["overloaded"] == STATUSES["rate_limit_exceeded"] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert STATUSES["invalid_api_key"] == grpc.StatusCode.UNAUTHENTICATED
    assert STATUSES["deadline_exceeded"] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert STATUSES["upstream_timeout"] == STATUSES["upstream_failed"] == grpc.StatusCode.UNAVAILABLE


async def test_fields_reach_the_job_as_over_http(site: Site, rpc: RpcService) -> None:
    schema = '{"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "maxProperties": 5}}}'
    request = asked(
        profile="docs",
        priority="batch",
        max_tokens=3,
        seed=2**53 + 1,
        stop=["END"],
        response_format=schema,
        rag=pb.Rag(collections=["probe"], filter='{"year": {"gte": 2024}}', return_contexts=True),
    )
    reply = await rpc.chat(request, Call())
    job = site.job
    assert reply.choices[0].message.content == "Baton answers from"
    assert reply.choices[0].finish_reason == "length"
    assert (job.profile, job.priority, job.max_tokens, job.sampling["seed"]) == ("docs", "batch", 3, 2**53 + 1)
    assert job.retrieval is not None
    assert job.retrieval.filter == {"year": {"gte": 2024}}
    assert job.response_format is not None
    assert job.response_format["json_schema"]["schema"]["maxProperties"] == 5
    assert reply.baton.contexts[0].text.startswith("The zebra note")
    assert reply.baton.citations[0].mark == 1
    assert reply.baton.stages["total"] == 1.2


async def test_tools_and_log_probabilities_go_both_ways(rpc: RpcService) -> None:
    tools = [pb.Tool(name="look", parameters='{"type": "object"}')]
    reply = await rpc.chat(asked(model="tooled", tools=tools, tool_choice="look"), Call())
    assert reply.choices[0].message.tool_calls[0].function.name == "look"
    reply = await rpc.chat(asked(logprobs=True, top_logprobs=1), Call())
    assert reply.choices[0].logprobs.content[0].top_logprobs[0].logprob == -0.5


async def test_parts_follow_the_content(site: Site, rpc: RpcService) -> None:
    turn = pb.ChatMessage(role="user", content="a", parts=[pb.ContentPart(text="b"), pb.ContentPart(text="c")])
    await rpc.chat(pb.ChatRequest(messages=[turn]), Call())
    assert site.job.messages[0].content == "abc"


async def test_an_image_part_is_judged_as_over_http(rpc: RpcService) -> None:
    part, call = pb.ContentPart(image_url="https://a.example/b.png"), Call()
    await rpc.chat(pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="a", parts=[part])]), call)
    assert "reads no images" in call.details


async def test_a_stream_ends_with_counts_and_what_is_known(rpc: RpcService) -> None:
    call = Call(x_request_id="mine")
    chunks = [chunk async for chunk in rpc.chat_stream(asked(), call)]
    assert "".join(choice.delta.content for chunk in chunks for choice in chunk.choices).startswith("Baton answers")
    assert chunks[-1].usage.completion_tokens == 6
    assert chunks[-2].baton.variant.model == "smol"
    assert (call.code, call.trailing["x-request-id"]) == (None, "mine")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_is_told_with_code_and_time_to_wait(make_site: Callable[..., Site], stream: bool) -> None:
    site = make_site(fail_before=Overloaded("The queue is full; try again.", "gateway", None, 7))
    call, rpc = Call(), service(site)
    if stream:
        assert [chunk.ByteSize() async for chunk in rpc.chat_stream(asked(), call)] == [0]
    else:
        assert (await rpc.chat(asked(), call)).ByteSize() == 0
    assert (call.code, call.details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "The queue is full; try again.")
    told = {name: call.trailing[name] for name in ("baton-code", "baton-stage", "retry-after")}
    assert told == {"baton-code": "overloaded", "baton-stage": "gateway", "retry-after": "7"}


async def test_an_error_in_mid_stream_ends_it(make_site: Callable[..., Site]) -> None:
    site = make_site(fail_after=EngineFailed("The engine gave up.", "generator"), fail_after_words=2)
    call = Call()
    chunks = [chunk async for chunk in service(site).chat_stream(asked(), call)]
    assert "".join(choice.delta.content for chunk in chunks for choice in chunk.choices) == "Baton answers"
    assert (call.code, call.details) == (grpc.StatusCode.UNAVAILABLE, "The engine gave up.")
    assert site.observed[-1].outcome == "failed"


async def test_a_field_that_is_no_ascii_does_not_break_the_metadata(rpc: RpcService) -> None:
    call = Call()
    await rpc.chat(asked(rag=pb.Rag(filter='{"größe\\n": {"nö": 1}}', collections=["probe"])), call)
    assert call.code == grpc.StatusCode.INVALID_ARGUMENT
    assert all(value.isascii() and value.isprintable() for value in call.trailing.values())


async def test_text_that_is_no_json_is_refused_by_name(rpc: RpcService) -> None:
    for request in (asked(response_format="{"), asked(rag=pb.Rag(filter="lang=en", collections=["probe"]))):
        call = Call()
        await rpc.chat(request, call)
        assert call.code == grpc.StatusCode.INVALID_ARGUMENT
        assert call.trailing["baton-param"] in ("response_format", "rag.filter")


@pytest.mark.parametrize(
    ("left", "own", "expected"),
    [("5.0", None, 5), ("5.0", 2.0, 2), ("5.0", 50.0, 5), ("9999", None, 600), ("-1", None, 0)],
)
async def test_the_earlier_deadline_holds(
    site: Site, rpc: RpcService, left: str, own: float | None, expected: float
) -> None:
    before = time.monotonic()
    await rpc.chat(asked(timeout_seconds=own), Call(**{SECONDS_LEFT: left}))
    assert site.job.deadline - before == pytest.approx(expected, abs=0.5)


async def test_a_deadline_over_the_limit_is_refused_though_the_call_s_is_not(rpc: RpcService) -> None:
    call = Call()
    await rpc.chat(asked(timeout_seconds=9_999), call)
    assert call.trailing["baton-param"] == "timeout_seconds"


async def test_a_deadline_that_passes_is_told(make_site: Callable[..., Site]) -> None:
    call = Call(**{SECONDS_LEFT: "0.05"})
    await service(make_site(delay_seconds=5)).chat(asked(), call)
    assert (call.code, call.trailing["baton-code"]) == (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded.code)


async def test_a_call_that_is_given_up_frees_the_pipeline(make_site: Callable[..., Site]) -> None:
    site = make_site(seconds_per_word=60)
    rpc = service(site)
    plain = asyncio.ensure_future(rpc.chat(asked(), Call()))
    async with aclosing(rpc.chat_stream(asked(), Call())) as stream:
        await anext(stream)
        await asyncio.sleep(0.05)
        assert site.pipeline.running == 2
    plain.cancel()
    await asyncio.gather(plain, return_exceptions=True)
    assert (site.pipeline.running, site.pipeline.closed) == (0, 2)


async def test_keys_hold_for_calls(site: Site) -> None:
    keys = Keys(MemoryMetrics())
    entry = {"id": "docs", "secrets": [{"hash": hash_of("bt-docs")}], "scopes": {"profiles": ["docs"]}}
    keys._take(Loaded(None, KeysFile.model_validate({"keys": [entry]})))
    rpc = service(site, keys)
    expected = {None: grpc.StatusCode.UNAUTHENTICATED, "bt-docs": grpc.StatusCode.PERMISSION_DENIED}
    for secret, code in expected.items():
        call = Call(**({"authorization": f"Bearer {secret}"} if secret else {}))
        await rpc.chat(asked(), call)
        assert call.code == code


async def test_a_body_over_the_limit_is_refused(site: Site, rpc: RpcService) -> None:
    site.limit(max_body_bytes=100)
    call = Call()
    await rpc.chat(asked("x" * 200), call)
    assert (call.code, call.trailing["baton-code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "payload_too_large")


async def test_retrieval_returns_passages(site: Site, rpc: RpcService) -> None:
    rag = pb.Rag(collections=["probe"], top_k=1)
    reply = await rpc.retrieve(pb.RetrieveRequest(query="zebra", rag=rag), Call())
    assert [(passage.id, passage.collection) for passage in reply.data] == [("z", "probe")]
    assert reply.stages["retriever"] == 1.0
    assert site.observed[-1].route == "/v1/retrieve"


class App:
    """Plays an application's API: ``asked`` holds method, path, query and body of what came."""

    def __init__(self) -> None:
        self.api = FastAPI()
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.api.post("/analyze")(self.answer)
        self.api.post("/articles")(self.answer)
        self.api.get("/articles")(self.answer)

    async def answer(self, request: Request) -> dict[str, Any]:
        raw = await request.body()
        self.asked.append((request.method, request.url.path, dict(request.query_params), json.loads(raw or b"null")))
        if request.url.path == "/analyze":
            label = {"label": "5 stars", "score": 0.9}
            return {"original_length": 4, "language": "en", "sentiment": label, "summary": "good"}
        return {"success": True, "message": "", "summary": "short", "named_entities": [{"text": "Ada"}, "Bob"]}


async def test_applications_are_asked_as_over_http() -> None:
    app = App()
    rpc, call = RpcService(app.api, lambda: 60.0), Call(**{SECONDS_LEFT: "5"})
    reply = await rpc.analyze(pb.AnalyzeRequest(text="good"), call)
    assert (reply.original_length, reply.sentiment.label, reply.summary) == (4, "5 stars", "good")
    found = await rpc.articles(pb.ArticlesRequest(search_term="ada & co"), call)
    assert (found.success, found.named_entities[1].string_value) == (True, "Bob")
    await rpc.articles(pb.ArticlesRequest(url="http://a.example"), Call())
    assert app.asked == [
        ("POST", "/analyze", {}, {"text": "good", "timeout_seconds": 5.0}),
        ("GET", "/articles", {"search_term": "ada & co", "timeout_seconds": "5.0"}, None),
        ("POST", "/articles", {}, {"url": "http://a.example"}),
    ]


@pytest.mark.parametrize(
    ("left", "own", "expected"),
    [(None, 2.0, 2.0), ("5", 2.0, 2.0), ("5", 50.0, 5.0), ("5", None, 5.0), (None, None, None), ("5", -1.0, -1.0)],
)
async def test_applications_get_the_earlier_deadline(left: str | None, own: float | None, expected: Any) -> None:
    app = App()
    rpc = RpcService(app.api, lambda: 60.0)
    metadata = {} if left is None else {SECONDS_LEFT: left}
    await rpc.analyze(pb.AnalyzeRequest(text="good", timeout_seconds=own), Call(**metadata))
    await rpc.articles(pb.ArticlesRequest(text="good", timeout_seconds=own), Call(**metadata))
    await rpc.articles(pb.ArticlesRequest(search_term="ada", timeout_seconds=own), Call(**metadata))
    bodies = [body for _, _, _, body in app.asked[:2]]
    assert [body.get("timeout_seconds") for body in bodies] == [expected, expected]
    assert app.asked[2][2].get("timeout_seconds") == (None if expected is None else str(expected))


async def test_a_reply_that_fits_no_message_is_a_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    api = FastAPI()

    @api.post("/analyze")
    async def analyze() -> dict[str, str]:
        return {"original_length": "a secret"}

    call = Call()
    await RpcService(api, lambda: 60.0).analyze(pb.AnalyzeRequest(text="good"), call)
    assert (call.code, call.trailing["baton-code"]) == (grpc.StatusCode.INTERNAL, "internal_error")
    assert "ParseError" in caplog.text
    assert "secret" not in caplog.text
