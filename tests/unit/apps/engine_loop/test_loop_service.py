"""The engine loop's routes over the fake engine: real guardrail, assembler and splicer, no Ray."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest

from app.admission import Admission
from app.api.charging import charged
from app.apps.engine_loop.api import ServedLoop, build_loop_api, tokens_so_far
from app.apps.engine_loop.hooks import StepMeter
from app.apps.engine_loop.loop import EngineLoop
from app.apps.engine_loop.prompts import LoopAssembler, Passage, PromptRequest
from app.apps.engine_loop.response_cache import ResponseCache
from app.apps.engine_loop.service import LoopJob, LoopService, LoopStages
from app.apps.engine_loop.splicing import Splicer
from app.config.answers import AssemblerConfig, ModelWindow
from app.config.engine_loop import EngineLoopSettings, ResponseCacheConfig
from app.config.guardrail import GuardrailConfig
from app.config.observing import TracesConfig
from app.errors import DeadlineExceeded, GuardrailBlocked
from app.handles import LocalCall
from app.keys.file import KeyLimits
from app.keys.meter import Meter
from app.keys.ring import Keys
from app.messages import Message
from app.metrics import MemoryMetrics
from app.stages.guardrail import Guardrail
from app.testing.step_engine import FakeStepEngine
from app.traces import OFF, Traces
from tests.collector import Collector
from tests.unit.prompting.model_folder import write_model
from tests.unit.site import InlineRunner

TERMS = [{"terms": ["bomb"], "category": "weapons"}, {"terms": ["secret"], "action": "redact"}]
HIDDEN = 8
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
CALL = {"id": "a", "function": {"name": "add", "arguments": "{}"}}


class SplicerHere:
    """The splicer in this process, as a remote one is called."""

    def __init__(self, splicer):
        self.splicer = splicer

    async def manage(self, method, parts):
        return getattr(self.splicer, method)(parts), time.time()


class Site:
    """The application in this process. ``http`` asks it."""

    def __init__(self, folder, embeddings=True, caching=True, traces=OFF, **engine):
        self.traces = traces
        self.engine = FakeStepEngine(**engine)
        self.metrics = MemoryMetrics()
        self.settings = EngineLoopSettings.parse(
            {"guardrail": {"policies": {"default": {"terms": TERMS}}}, "limits": {"maxTokens": 2000}}, "settings"
        )
        self.guardrail = Guardrail(self.settings.guardrail)
        self.assembler = LoopAssembler("tiny", ModelWindow(tokenizer=folder, context_tokens=2000))
        hooks = [StepMeter(), *([ResponseCache(ResponseCacheConfig(enabled=True))] if caching else [])]
        self.loop = EngineLoop(lambda: self.engine, hooks, 4, self.metrics)
        self.matrix = np.arange(60_000 * HIDDEN, dtype=np.float32).reshape(-1, HIDDEN)
        splicer = SplicerHere(Splicer(self.matrix, "float32", 64, 1 << 20)) if embeddings else None
        stages = LoopStages(self.call("guardrail"), self.call("assembler"), splicer)
        self.service = LoopService("tiny", self.loop, stages, self.metrics, traces, caching=caching)
        self.seen = []

    def call(self, name):
        runner = InlineRunner(getattr(self, name), [])
        return LocalCall(name, runner, Admission(name, 8, 8, self.metrics), self.traces)

    def job(self, content="hello", **fields):
        fields = {"sampling": {"temperature": 0.7}, "max_tokens": 4, "deadline": time.monotonic() + 20} | fields
        return LoopJob("id", (Message("user", content),), "", "default", **fields)

    async def ask(self, **body):
        return await self.http.post("/generate", json={"max_tokens": 6} | body)

    async def idle(self):
        async with asyncio.timeout(10):
            while self.loop.report()["unfinished"]:  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.005)


@pytest.fixture
def site(tmp_path):
    @asynccontextmanager
    async def running(**options):
        found = Site(write_model(tmp_path), **options)
        found.guardrail.start()
        found.assembler.start()
        found.assembler.configure(AssemblerConfig(default_max_tokens=100, min_answer_tokens=10))
        await found.loop.start()
        around = ServedLoop("tiny", 2000, found.service, lambda: found.settings)
        app = build_loop_api(around, found.seen.append, Keys(found.metrics), found.traces)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://loop") as found.http:
            yield found
        await found.loop.stop()

    return running


async def test_an_answer_has_text_reason_and_usage(site):
    async with site() as here:
        reply = (await here.ask(prompt="hello")).json()
        prompt_tokens = here.engine.seen[0].prompt_tokens
    assert reply["text"] == "Baton answers step by step."
    assert reply["finish_reason"] == "length"
    assert reply["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 6,
        "total_tokens": prompt_tokens + 6,
    }
    assert reply["baton"] == {"cached": False}


async def test_defaults_are_those_of_the_configuration(site):
    async with site() as here:
        await here.http.post("/generate", json={"prompt": "hello"})
        (asked,) = here.engine.seen
    assert (asked.sampling["temperature"], asked.sampling["top_p"], asked.sampling["max_tokens"]) == (0.7, 0.9, 100)
    assert EngineLoopSettings().sampling.max_tokens == 1024


async def test_a_stream_has_the_same_in_pieces(site):
    async with site(seconds_per_step=0.01) as here:
        text = (await here.ask(prompt="hello", stream=True)).text
    frames = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    *pieces, end, done = frames
    assert done == "[DONE]"
    assert "".join(json.loads(piece)["text"] for piece in pieces) == "Baton answers step by step."
    assert json.loads(end)["finish_reason"] == "length"


async def test_a_conversation_is_assembled_with_its_passages(site):
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    async with site() as here:
        await here.ask(messages=talk, passages=[{"text": "The lamp is red.", "source": "lamp.md"}])
        tokenizer = here.assembler._assembler.tokenizer("tiny")
        shown = tokenizer._tokenizer.decode(list(here.engine.seen[0].tokens), skip_special_tokens=False)
    places = [shown.index(text) for text in ("Be brief.", "one", "two", "> The lamp is red.", "three")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "Images are not taken here: ask /v1/chat"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, IMAGE]}]}, "Images are not"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "Tool turns are not taken here"),
        ({"messages": [{"role": "tool", "content": "4", "tool_call_id": "a"}]}, "Tool turns are not taken here"),
        ({"prompt": "hello", "tools": []}, "tools"),
    ],
)
async def test_what_the_loop_does_not_take_is_refused_with_a_sentence(site, body, said):
    async with site() as here:
        refused = await here.ask(**body)
        assert here.engine.seen == []
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]


async def test_a_tensor_holds_the_rows_of_the_text_s_tokens(site):
    question = {"prompt": "How red is it?", "passages": [{"text": "The lamp is red."}, {"text": "So is the sofa."}]}
    async with site() as here:
        for _ in range(2):  # the second time the passages' rows are there already
            reply = (await here.ask(**question, input="embeddings")).json()
        await here.ask(**question)
        *tensors, text = here.engine.seen
    for found in tensors:
        assert np.array_equal(found.tensor.rows, here.matrix[list(text.tokens)])
        assert found.tokens == text.tokens
    assert reply["baton"]["handoff"]["bytes"] == len(text.tokens) * HIDDEN * 4
    assert reply["baton"]["handoff"]["copies"] == {"splicer": 1, "object_store": 1, "engine_loop": 1, "engine": 0}
    assert here.metrics.total("baton_handoffs_total", hop="splicer-engine_loop", path="inline") == 2
    assert here.service.report()["embeddings"]["tensors"] == 2


async def test_parts_are_the_prompt_cut_at_passages_and_turns(site):
    async with site() as here:
        request = PromptRequest(
            "Be brief.", (Message("user", "q"),), (Passage("First one.", "a"), Passage("Second one.", "b"))
        )
        prompt = here.assembler.run(request)
    assert tuple(token for part in prompt.parts for token in part.tokens) == prompt.tokens
    assert sum(part.shared for part in prompt.parts) == 3


async def test_without_a_splicer_tensors_are_refused(site):
    async with site(embeddings=False) as here:
        reply = await here.ask(prompt="hello", input="embeddings")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "input")


# --- the response cache -----------------------------------------------------------------------------------------------


async def test_deterministic_answers_are_kept_for_their_tenant_alone(site):
    async with site() as here:
        cached = []
        for tenant in ("a", "a", "b"):
            *_, end = [event async for event in here.service.answer(here.job(sampling={"seed": 1}, tenant=tenant))]
            cached.append(end.cached)
        assert cached == [False, True, False]
        assert [asked.tenant for asked in here.engine.seen] == ["a", "b"]


async def test_a_kept_answer_is_judged_anew(site):
    async with site(words=("all", " is", " a", " bomb", " here")) as here:
        first = (await here.ask(prompt="hello", temperature=0)).json()
        here.guardrail.configure(GuardrailConfig())
        second = (await here.ask(prompt="hello", temperature=0)).json()
    assert (first["finish_reason"], first["text"]) == ("content_filter", "all is a ")
    assert (second["finish_reason"], second["text"]) == ("stop", "all is a bomb here")


# --- guardrail, deadlines, overload -----------------------------------------------------------------------------------


async def test_a_blocked_question_never_reaches_the_engine(site):
    async with site() as here:
        for body, param in (
            ({"prompt": "a bomb"}, "messages"),
            ({"prompt": "x", "passages": [{"text": "y"}, {"text": "a bomb"}]}, "passages[1]"),
        ):
            error = (await here.ask(**body)).json()["error"]
            assert (error["code"], error["param"]) == ("content_filter", param)
        assert here.engine.seen == []
        with pytest.raises(GuardrailBlocked):
            await anext(here.service.answer(here.job("a bomb")))


async def test_redactions_hold_both_ways(site):
    async with site(words=("my", " secret", " plan")) as here:
        reply = (await here.ask(prompt="the secret")).json()
        tokenizer = here.assembler._assembler.tokenizer("tiny")
        asked = tokenizer._tokenizer.decode(list(here.engine.seen[0].tokens), skip_special_tokens=False)
    assert reply["text"] == "my [redacted] plan"
    assert "secret" not in asked


async def test_an_answer_that_is_blocked_ends_in_the_engine_too(site):
    async with site(words=("a", " bomb", " and", " more"), seconds_per_step=0.01) as here:
        reply = (await here.ask(prompt="hello", max_tokens=1000, ignore_eos=True)).json()
        await here.idle()
    assert reply["finish_reason"] == "content_filter"
    assert "bomb" not in reply["text"]
    assert len(here.engine.aborted) == 1


async def test_a_deadline_ends_the_answer_and_the_engine_s_work(site):
    async with site(seconds_per_step=0.01) as here:
        job = here.job(sampling={"ignore_eos": True}, max_tokens=1000, deadline=time.monotonic() + 0.2)
        with pytest.raises(DeadlineExceeded):
            [event async for event in here.service.answer(job)]
        await here.idle()
        reply = await here.ask(prompt="hello", max_tokens=1000, ignore_eos=True, timeout_seconds=0.2)
        await here.idle()
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert len(here.engine.aborted) == 2


async def test_a_full_loop_answers_503_with_retry_after(site):
    async with site(seconds_per_step=0.02) as here:
        long = {"prompt": "hello", "max_tokens": 30, "ignore_eos": True}
        replies = await asyncio.gather(*(here.ask(**long) for _ in range(7)))
    shed = [reply for reply in replies if reply.status_code == 503]
    assert len(shed) == 3
    assert all(reply.headers["Retry-After"] and reply.json()["error"]["code"] == "overloaded" for reply in shed)
    assert sum(seen.outcome == "shed" for seen in here.seen) == 3


async def test_an_engine_that_died_answers_503_in_openai_s_shape(site):
    async with site(die_after=1) as here:
        reply = await here.ask(prompt="hello")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "stage_unavailable")
    assert int(reply.headers["Retry-After"]) > 0


# --- what is seen of it -----------------------------------------------------------------------------------------------


async def test_requests_are_counted_under_a_route_of_their_own(site):
    async with site() as here:
        await here.ask(prompt="hello")
        stats = (await here.http.get("/stats")).json()
    assert (here.seen[0].route, here.seen[0].outcome) == ("/engine-loop/generate", "answered")
    assert stats["steps"]["tokens"] == 6
    assert (stats["model"], stats["unfinished"]) == ("tiny", 0)
    assert here.metrics.total("baton_tokens_total", direction="out") == 6


async def test_a_request_is_one_trace(site):
    traces = Traces("engine_loop")
    with Collector() as collector:
        traces.configure(TracesConfig(endpoint=collector.endpoint))
        async with site(traces=traces) as here:
            trace = (await here.ask(prompt="hello", stream=True)).headers["traceparent"].split("-")[1]
        await asyncio.to_thread(traces.close)
    spans = {span.name: span for span in collector.of_trace(trace)}
    root, engine = spans["POST /generate"], spans["engine_loop"]
    assert {spans[name].parent for name in ("guardrail", "assembler", "engine_loop")} == {root.id}
    assert engine.attributes["gen_ai.usage.output_tokens"] == 6
    assert engine.events == ("first token",)


async def test_a_key_pays_for_what_it_got(site):
    async with site(seconds_per_step=0.005) as here:
        whole, broken = Meter(KeyLimits(tokens_per_minute=1000)), Meter(KeyLimits(tokens_per_minute=1000))
        job = here.job(max_tokens=6)
        async for _ in charged(here.service.answer(job), whole, tokens_so_far):
            pass
        events = charged(here.service.answer(here.job(max_tokens=6)), broken, tokens_so_far)
        await anext(events)
        await anext(events)
        await events.aclose()
        prompt_tokens = here.engine.seen[0].prompt_tokens
    assert int(whole.headers()[1][1]) == pytest.approx(1000 - prompt_tokens - 6, abs=2)
    assert int(broken.headers()[1][1]) < 1000 - prompt_tokens + 2
