"""The three shapes in which the engine answers, and what they become."""

import pytest

from app.errors import (
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    ReplicaLost,
    SchemaRejected,
    StageUnavailable,
)
from app.messages import GenerateRequest, Usage
from app.stages.generator import Generator, engine_error
from app.testing.engine import FakeEngine


def request(**given):
    return GenerateRequest(
        **(
            {"model": "tiny", "request_id": "r1", "messages": ({"role": "user", "content": "hi"},), "max_tokens": 4}
            | given
        )
    )


async def read(engine, **given):
    return [delta async for delta in Generator({"tiny": engine}).run(request(**given))]


async def test_a_stream_ends_with_a_finish_and_the_usage():
    deltas = await read(FakeEngine(["a", "b", "c"]))
    assert "".join(delta.content for delta in deltas) == "a b c"
    assert [delta.finish_reason for delta in deltas] == [None, None, "stop", None]
    assert deltas[-1].usage == Usage(prompt_tokens=1, completion_tokens=3)


async def test_choices_are_kept_apart():
    deltas = await read(FakeEngine(["a", "b"]), n=2)
    assert {delta.index for delta in deltas if delta.usage is None} == {0, 1}
    assert "".join(delta.content for delta in deltas if delta.index == 1) == "a b"


async def test_completions_read_text_and_send_the_prompt():
    engine = FakeEngine(["x", "y"])
    deltas = await read(engine, prompt="once", messages=())
    assert "".join(delta.content for delta in deltas) == "x y"
    assert engine.bodies[0]["prompt"] == "once"
    assert "messages" not in engine.bodies[0]


async def test_completions_keep_the_likeliest_tokens_of_each_place():
    deltas = await read(FakeEngine(["x", "y"]), prompt="once", messages=(), logprobs=True, top_logprobs=1)
    likeliest = [[top["token"] for top in token["top_logprobs"]] for delta in deltas for token in delta.logprobs]
    assert likeliest == [["x ", "other0"], ["y", "other0"]]
    assert deltas[0].logprobs[0]["top_logprobs"][1]["logprob"] == -2.0


@pytest.mark.parametrize("top", [None, [None]])
async def test_a_place_without_likeliest_tokens_has_none(top):
    class Silent:
        async def generate(self, kind, body, trace=None):
            logprobs = {"tokens": ["x"], "token_logprobs": [None], "top_logprobs": top}
            yield {"choices": [{"index": 0, "text": "x", "logprobs": logprobs}]}

    deltas = await read(Silent(), prompt="once", messages=())
    assert deltas[0].logprobs == ({"token": "x", "logprob": 0.0, "top_logprobs": []},)


async def test_every_setting_reaches_the_engine():
    engine = FakeEngine()
    tool = {"type": "function", "function": {"name": "f"}}
    await read(
        engine,
        sampling={"temperature": 0.5},
        tools=(tool,),
        response_format={"type": "json_object"},
        logprobs=True,
        top_logprobs=2,
        priority=10,
    )
    body = engine.bodies[0]
    assert body["temperature"] == 0.5
    assert body["tools"] == [tool]
    assert body["tool_choice"] == "auto"
    assert body["response_format"] == {"type": "json_object"}
    assert (body["logprobs"], body["top_logprobs"], body["priority"]) == (True, 2, 10)
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("fail_after", [0, 2])
async def test_an_engine_that_gives_up_raises_wherever_it_happens(fail_after):
    seen = []

    async def collect():
        async for delta in Generator({"tiny": FakeEngine(fail_after=fail_after)}).run(request()):
            seen.append(delta)

    with pytest.raises(EngineFailed) as caught:
        await collect()
    assert len(seen) == fail_after
    assert "died" not in str(caught.value)


async def test_an_unknown_model_is_refused():
    with pytest.raises(ModelNotFound, match="huge"):
        await read(FakeEngine(), model="huge")


async def test_leaving_the_stream_aborts_the_request():
    engine = FakeEngine()
    stream = Generator({"tiny": engine}).run(request(max_tokens=1000))
    await anext(stream)
    assert engine.running == 1
    await stream.aclose()
    assert (engine.running, engine.aborted) == (0, 1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "Grammar error: bad regex", "code": 400}, SchemaRejected),
        ({"message": "Input is too long", "param": "input_tokens", "code": 400}, ContextLengthExceeded),
        ({"message": "This model's maximum context length is 8192 tokens.", "code": 400}, ContextLengthExceeded),
        ({"message": "The model `x` does not exist.", "code": 404}, ModelNotFound),
        ({"message": "temperature must be non-negative", "code": 400}, InvalidRequest),
        ({"message": "busy", "code": 503}, StageUnavailable),
        ({"message": "EngineCore encountered an issue. See stack trace (above).", "code": 500}, ReplicaLost),
        ({"message": "CUDA out of memory\nTraceback …", "code": 500}, EngineFailed),
        ({}, EngineFailed),
    ],
)
def test_engine_errors_become_ours(error, expected):
    translated = engine_error(error)
    assert type(translated) is expected
    assert translated.stage == "generator"
    assert "Traceback" not in str(translated)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input "
            "tokens, which exceeds this limit even without any output tokens.",
            "The model's context window is 512 tokens; the prompt takes at least 513 input tokens. Shorten the prompt "
            "or lower max_tokens.",
        ),
        (
            "This model's maximum context length is 512 tokens. However, your prompt contains 9000 characters (more "
            "than 8192 characters, which is the upper bound for 512 input tokens).",
            "The model's context window is 512 tokens; the prompt takes 9000 characters. Shorten the prompt or lower "
            "max_tokens.",
        ),
        (
            "The input is longer than the maximum model length.",
            "The model's context window is too small. Shorten the prompt or lower max_tokens.",
        ),
    ],
)
async def test_a_prompt_over_the_window_is_told_in_our_words(said, sentence):
    class Full(FakeEngine):
        async def generate(self, kind, body, trace=None):
            yield {"error": {"message": said, "code": 400}}

    with pytest.raises(ContextLengthExceeded) as caught:
        await read(Full(), prompt="once", messages=())
    assert (str(caught.value), caught.value.param) == (sentence, "prompt")
    assert engine_error({"message": said, "code": 400}).param == "messages"


def test_a_failed_assertion_of_the_compilers_is_told_in_our_words():
    message = "Check failed: (val <= MAX_INT64_AS_DOUBLE) is false: maximum out of range"
    error = engine_error({"message": message, "code": 400})
    assert (type(error), error.param) == (SchemaRejected, "response_format")
    assert str(error).startswith("The engine cannot make a grammar of this schema: simplify")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}},
            "JSON schema refused at /properties/tags/uniqueItems: the engine cannot keep an answer to uniqueItems: ",
        ),
        (
            {"anyOf": [{}, {"type": ["null", "integer"], "multipleOf": 5}]},
            "JSON schema refused at /anyOf/1/multipleOf: ",
        ),
        ({"type": "array", "items": {"type": "array", "contains": {}}}, "JSON schema refused at /items/contains: "),
        ({"type": "string", "format": "car"}, "JSON schema refused at /format: the engine does not know this format"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "JSON schema refused at /pattern: "),
        ({"$defs": {"a": {"allOf": [{}, {}]}}}, "JSON schema refused at /$defs/a/allOf: "),
        (
            {"type": "object", "propertyNames": {"pattern": "a"}, "properties": {}},
            "JSON schema refused at /propertyNames: the engine cannot use it beside properties",
        ),
        (
            {"type": "object", "propertyNames": {"pattern": "a", "minLength": 1}},
            "JSON schema refused at /propertyNames",
        ),
        (
            {"type": "object", "patternProperties": {"a": {}, "b": {}}},
            "JSON schema refused at /patternProperties: the engine can use it alone",
        ),
        ({"multipleOf": 5, "uniqueItems": True}, "The engine cannot make a grammar of this schema: "),
        (None, "The engine cannot make a grammar of this schema: "),
    ],
)
async def test_what_the_compiler_does_not_know_is_told_with_its_place(schema, told):
    class Strict(FakeEngine):
        async def generate(self, kind, body, trace=None):
            message = "The provided JSON schema contains features not supported by xgrammar."
            yield {"error": {"message": message, "code": 400}}

    asked = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}} if schema else None
    with pytest.raises(SchemaRejected) as caught:
        await read(Strict(), response_format=asked)
    assert caught.value.param == "response_format"
    assert str(caught.value).startswith(told)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("grammar: [22:41:25] /build/src/compiler.cc:49: Unsupported type", "Unsupported type."),
        (
            "json schema into a grammar: [22:41:25] /c.cc:8: maxProperties is less: 0 < 1",
            "maxProperties is less: 0 < 1.",
        ),
        ("json schema into a grammar: [22:41:25] /c.cc:8: EBNF parser error at line 1, column 6: 3 > 1 ", "3 > 1."),
    ],
)
def test_the_compilers_own_place_is_not_shown(said, reason):
    error = engine_error({"message": f"Failed to transform {said}", "code": 400})
    assert str(error).startswith("The engine cannot make a grammar of this schema: ")
    assert str(error).endswith(f". The reason: {reason}")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "integer", "minimum": 1.5}, "/minimum: bounds of a whole number must be whole numbers."),
        ({"type": "string", "pattern": r"\bfoo"}, r"/pattern: the engine knows neither \b nor \p{…} in a pattern"),
    ],
)
def test_what_the_compiler_refuses_without_a_place_is_told_with_one(schema, told):
    asked = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}
    message = "Failed to transform json schema into a grammar: [22:41:25] /c.cc:8: not supported yet."
    assert told in str(engine_error({"message": message, "code": 400}, response_format=asked))
