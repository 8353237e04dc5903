"""gRPC beside HTTP: Serve's real proxy before a pipeline over the shipped fakes, asked by grpcio's client."""

import re
import subprocess
import sys
import time

import grpc
import pytest

from app.protos.baton_pb2 import (
    AnalyzeRequest,
    ArticlesRequest,
    ChatMessage,
    ChatRequest,
    Rag,
    RetrieveRequest,
)
from app.protos.baton_pb2_grpc import BatonStub
from tests.app.baton import ROOT, START_SECONDS
from tests.app.fake_cluster import DOCUMENTS, PORT, SMALL, running

GRPC_PORT = PORT + 3
TARGET = f"127.0.0.1:{GRPC_PORT}"
#: The last one fills the buffers between gateway and caller quickly.
WORDS = [*(f"word{number}" for number in range(7)), "x" * 50_000]
LONG = {"content": "long", "max_tokens": 2000, "ignore_eos": True}
ENGINE = {"seconds_per_token": 0.01, "words": WORDS, "max_ongoing_requests": 1}
BLOCKED = {"policies": {"default": {"terms": [{"terms": ["forbidden"], "action": "block"}]}}}


def small(raw):
    raw["machine"]["grpcPort"] = GRPC_PORT
    raw["pipeline"]["stages"] = {
        "gateway": {"options": SMALL},
        "retriever": {"placement": "deployment", "options": SMALL},
        "postprocessor": {"placement": "gateway"},
    }
    raw["settings"]["guardrail"] = BLOCKED


@pytest.fixture(scope="module")
def site(models, tmp_path_factory):
    data = tmp_path_factory.mktemp("grpc")
    (data / "models").symlink_to(models)
    with running(data) as found:
        found.deploy(ENGINE, small)
        found.index("notes")
        yield found


@pytest.fixture(scope="module")
def caller(site):
    with grpc.insecure_channel(TARGET) as channel:
        yield BatonStub(channel)


def asked(content="hi", **fields):
    return ChatRequest(messages=[ChatMessage(role="user", content=content)], **fields)


def assert_free(caller):
    """The engine works on one answer at a time: it has none at work if another one comes at once."""
    began = time.monotonic()
    assert caller.Chat(asked(max_tokens=1), timeout=15).choices[0].message.content == WORDS[0].strip()
    assert time.monotonic() - began < 3


def refused(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details(), dict(caught.value.trailing_metadata())


@pytest.mark.timeout(START_SECONDS)
def test_a_plain_answer_equals_the_one_over_http(site, caller):
    reply, call = caller.Chat.with_call(asked(max_tokens=6), metadata=[("x-request-id", "mine-1")])
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
    http = site.http.post("/v1/chat/completions", json=body).json()
    assert reply.choices[0].message.content == http["choices"][0]["message"]["content"] == " ".join(WORDS[:6])
    assert reply.choices[0].finish_reason == http["choices"][0]["finish_reason"]
    assert reply.usage.completion_tokens == http["usage"]["completion_tokens"] == 6
    assert reply.baton.variant.profile == http["baton"]["variant"]["profile"]
    assert dict(call.trailing_metadata())["x-request-id"] == "mine-1"


def test_a_stream_comes_piece_by_piece_and_ends_with_the_counts(caller):
    chunks, times = [], []
    for chunk in caller.ChatStream(asked()):
        chunks.append(chunk)
        times.append(time.monotonic())
    assert "".join(choice.delta.content for chunk in chunks for choice in chunk.choices) == " ".join(WORDS)
    assert chunks[-1].usage.completion_tokens == len(WORDS)
    assert [chunk.baton.variant.profile for chunk in chunks if chunk.HasField("baton")] == ["default"]
    assert times[-1] - times[0] > 0.05


def test_retrieval_finds_what_http_finds(site, caller):
    rag = {"collections": ["notes"], "top_k": 3, "filter": '{"missing": {"exists": false}}'}
    reply = caller.Retrieve(RetrieveRequest(query="zebras", rag=Rag(**rag)))
    http = site.http.post("/v1/retrieve", json={"query": "zebras", "rag": {"collection": "notes", "top_k": 3}}).json()
    assert [passage.id for passage in reply.data] == [passage["id"] for passage in http["data"]]
    assert len(reply.data) == 3
    assert "zebras" in reply.data[0].text
    assert reply.data[0].collection == "notes"
    assert reply.stages["retriever"] > 0
    assert len(DOCUMENTS) > 3


def test_a_refusal_has_the_sentence_and_the_code_of_http(site, caller):
    body = {"messages": [{"role": "user", "content": "a forbidden thing"}]}
    http = site.http.post("/v1/chat/completions", json=body).json()["error"]
    for call in (
        lambda: caller.Chat(asked("a forbidden thing")),
        lambda: list(caller.ChatStream(asked("a forbidden thing"))),
    ):
        code, details, trailing = refused(call)
        assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, http["message"])
        assert (trailing["baton-code"], trailing["baton-stage"]) == ("content_filter", "guardrail")


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (ChatRequest(), "invalid_request", "messages"),
        (asked(model="nobody"), "model_not_found", "nobody"),
        (asked(temperature=3), "invalid_request", "temperature"),
        (asked(response_format="{"), "invalid_request", "response_format"),
        (asked(timeout_seconds=10_000), "invalid_request", "timeout_seconds"),
        (asked(rag=Rag(collections=["none"])), "collection_not_found", "none"),
    ],
)
def test_faulty_requests_are_told_what_to_change(caller, request_, code, words):
    _, details, trailing = refused(lambda: caller.Chat(request_))
    assert trailing["baton-code"] == code
    assert words in details


def test_a_request_over_the_limit_is_refused_before_it_is_sent_on(caller):
    code, details, trailing = refused(lambda: caller.Chat(asked("x" * (4 * 1024 * 1024))))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert trailing["baton-code"] == "payload_too_large"
    assert "limit" in details


def test_a_deadline_in_the_message_is_told_by_the_stage(caller):
    code, _, trailing = refused(lambda: caller.Chat(asked(**LONG, timeout_seconds=0.4)))
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert trailing["baton-stage"] == "generator"
    assert_free(caller)


def test_the_call_s_own_deadline_frees_the_engine(caller):
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        caller.Chat(asked(**LONG), timeout=0.5)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 3
    assert_free(caller)


@pytest.mark.parametrize("after", [0, 3])
def test_a_cancelled_call_frees_the_engine(caller, after):
    for _ in range(5):
        stream = caller.ChatStream(asked(**LONG))
        for _ in range(after):
            next(stream)
        stream.cancel()
    assert_free(caller)


def test_a_caller_that_reads_slowly_and_leaves_frees_the_engine(caller):
    """Its messages wait in the proxy, at a place where Serve's own generators would let the call go on."""
    stream = caller.ChatStream(asked(**LONG))
    next(stream)
    time.sleep(3)
    stream.cancel()
    assert_free(caller)


def test_an_application_that_is_not_deployed_is_named(caller):
    for call, name in (
        (lambda: caller.Analyze(AnalyzeRequest(text="good")), "analyze"),
        (lambda: caller.Articles(ArticlesRequest(search_term="good")), "articles"),
    ):
        code, details, trailing = refused(call)
        assert code == grpc.StatusCode.NOT_FOUND
        assert f"'{name}' is not deployed" in details
        assert trailing["baton-code"] == "not_found"


def test_a_caller_cannot_reach_past_the_gateway(caller):
    reply = caller.Chat(asked(max_tokens=1), metadata=[("application", "model-fake")])
    assert reply.choices[0].message.content == WORDS[0]


@pytest.mark.parametrize("file", ["README.md", "docs/grpc.md"])
def test_the_example_runs_as_shown(site, file):
    text = (ROOT / file).read_text()
    (shown,) = re.findall(r"^```shell\n(\.venv/bin/python -m examples.grpc_client .*?)^```", text, re.M | re.S)
    command = (
        shown.replace(".venv/bin/python", sys.executable, 1)
        .replace("127.0.0.1:9000", TARGET)
        .replace(" docs", " notes")
    )
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "note-" in done.stdout
    assert done.stdout.strip().endswith(" ".join(WORDS))
