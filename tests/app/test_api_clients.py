"""The real clients of OpenAI and LangChain against the gateway, over a socket, with the scripted pipeline behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import uvicorn
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from app.api.application import build_api
from app.config.gateway import GatewayConfig
from app.errors import EngineFailed
from app.testing.pipeline import FakeCollection, FakePipeline

TEXT = "Baton answers from its documents."
HI: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def pipeline() -> FakePipeline:
    return FakePipeline(collections={"docs": FakeCollection({"a": {"id": "a", "text": "One."}})})


@pytest.fixture(scope="module")
def base(pipeline: FakePipeline) -> Iterator[str]:
    config = GatewayConfig.parse(
        {
            "models": {"smol": {"tools": True}},
            "profiles": {
                "default": {"model": "smol"},
                "fast": {"model": "smol", "retrieval": {"enabled": True, "collections": ["docs"]}},
            },
        },
        "gateway",
    )
    app = build_api(lambda: pipeline, lambda: config)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def client(base: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_openai_plain(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="fast", messages=HI, logprobs=True, top_logprobs=1, extra_body={"rag": {"return_contexts": True}}
    )
    assert reply.choices[0].message.content == TEXT
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 6
    assert reply.choices[0].logprobs is not None
    assert (reply.model_extra or {})["baton"]["contexts"][0]["text"] == "One."


def test_openai_streamed(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="smol", messages=HI, stream=True, n=2, stream_options={"include_usage": True}
        )
    )
    for index in (0, 1):
        pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(pieces) == TEXT
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert ["baton" in (chunk.model_extra or {}) for chunk in chunks][-2:] == [True, False]
    with client.chat.completions.stream(model="smol", messages=HI) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == TEXT


def test_openai_takes_its_own_tool_turns_back(client: openai.OpenAI) -> None:
    called = client.chat.completions.create(model="smol", messages=HI, tools=[TOOL], tool_choice="required")
    turn = called.choices[0].message
    assert turn.tool_calls is not None
    result: Any = {"role": "tool", "tool_call_id": turn.tool_calls[0].id, "content": "Sunny"}
    for form in (turn, turn.model_dump()):
        messages: Any = [*HI, form, result]
        assert client.chat.completions.create(model="smol", messages=messages).choices[0].message.content == TEXT


def test_openai_other_endpoints(client: openai.OpenAI) -> None:
    assert client.completions.create(model="smol", prompt="hi", logprobs=1).choices[0].text == TEXT
    pieces = client.completions.create(model="smol", prompt="hi", stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == TEXT
    packed = client.embeddings.create(model="embedder", input=["a", "b"])
    plain = client.embeddings.create(model="embedder", input=["a", "b"], encoding_format="float")
    assert packed.data[1].embedding == pytest.approx(plain.data[1].embedding)
    assert [model.id for model in client.models.list()] == ["smol", "default", "fast", "embedder"]
    assert client.models.retrieve("fast").id == "fast"


def test_openai_sees_our_errors_as_its_own(client: openai.OpenAI, pipeline: FakePipeline) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nope", messages=HI)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as faulty:
        client.chat.completions.create(model="smol", messages=HI, max_tokens=-1)
    assert faulty.value.param == "max_tokens"
    pipeline.rescript(fail_after=EngineFailed("The engine stopped.", "generator"))
    try:
        with pytest.raises(openai.APIError, match="The engine stopped"):
            list(client.chat.completions.create(model="smol", messages=HI, stream=True))
    finally:
        pipeline.rescript(fail_after=None)


def test_langchain(base: str) -> None:
    chat = ChatOpenAI(model="fast", base_url=f"{base}/fast/v1", api_key="none", max_retries=0)  # type: ignore[arg-type]
    assert chat.invoke([("system", "s"), ("user", "hi")]).text == TEXT
    assert "".join(chunk.text for chunk in chat.stream("hi")) == TEXT
    counted = chat.model_copy(update={"stream_usage": True})
    assert [chunk.usage_metadata["output_tokens"] for chunk in counted.stream("hi") if chunk.usage_metadata] == [6]
    asked = chat.bind_tools([TOOL], tool_choice="weather").invoke("hi")
    assert [call["name"] for call in asked.tool_calls] == ["weather"]
    embeddings = OpenAIEmbeddings(
        model="embedder",
        base_url=f"{base}/v1",
        api_key="none",
        check_embedding_ctx_length=False,  # type: ignore[arg-type]
    )
    assert len(embeddings.embed_documents(["a", "b"])) == 2
