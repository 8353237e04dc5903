"""The core LLM as a backend of the applications, on the shipped fake engine: questions, answers, faults, deadlines."""

import asyncio
import time

import grpc
import httpx
import orjson
import pytest

from app.admission import Admission
from app.api.application import Surroundings
from app.api.applications import analyze, articles
from app.api.applications.application import Application, build_application
from app.api.rpc.service import RpcService
from app.apps.analyze import Analyze
from app.apps.articles import Articles, Steps
from app.apps.backends.build import build_entities, build_sentiment, build_summary
from app.apps.guarding import Guard
from app.apps.messages import Entity, Prepared, Sentiment, SummaryRequest
from app.config.applications import AnalyzeSettings, ArticlesSettings, EntitiesShape, SentimentShape, SummaryShape
from app.config.gateway import LimitsConfig
from app.errors import ContextLengthExceeded, EngineFailed, ReplicaLost
from app.messages import Verdict
from app.metrics import MemoryMetrics
from app.protos import baton_pb2 as pb
from app.stages.generator import Generator
from app.testing.engine import FakeEngine

TEXT = "Ada Lovelace lived in London and was happy there. " * 20
RATING = {"label": "4 stars", "score": 0.9}
SUMMARY = {"summary": "Ada was happy in London."}
NAMES = {
    "entities": [
        {"text": "Ada Lovelace", "label": "PERSON", "score": 1.7},
        {"text": "London", "label": "PLACE", "score": 0.95},
        {"text": "Paris", "label": "PLACE", "score": 0.9},
    ]
}
BUILDERS = {
    "sentiment": (build_sentiment, SentimentShape),
    "summary": (build_summary, SummaryShape),
    "entities": (build_entities, EntitiesShape),
}
ASKED = {"sentiment": TEXT, "summary": SummaryRequest(TEXT, 5, 40), "entities": TEXT}


def writes(answer, **options):
    """Return an engine that writes this as JSON, word by word."""
    return FakeEngine(words=orjson.dumps(answer).decode().split(" "), **options)


def backend(task, engine):
    build, shape = BUILDERS[task]
    found = {"kind": "model", "source": "core"}
    asked_for = []

    def find(application, model):
        asked_for.append((application, model))
        return Generator({model: engine})

    built = build(shape(backend=found), find)
    assert asked_for == [("model-core", "core")]
    return built


@pytest.mark.parametrize(
    ("task", "answer", "expected"),
    [
        ("sentiment", RATING, Sentiment("4 stars", 0.9, 0.0)),
        ("sentiment", {"label": "1 star", "score": 0.7}, Sentiment("1 star", 0.7, 0.7)),
        ("summary", SUMMARY, SUMMARY["summary"]),
        ("entities", NAMES, (Entity("Ada Lovelace", "PERSON", 1.0), Entity("London", "PLACE", 0.95))),
    ],
)
async def test_a_task_is_a_question_with_a_schema_and_its_answer_a_result(task, answer, expected):
    engine = writes(answer)
    found = backend(task, engine)
    await found.start()
    assert await found.answer([ASKED[task]]) == [expected]
    (body,) = engine.bodies
    assert (body["model"], body["temperature"], body["stream"]) == ("core", 0, True)
    assert TEXT in body["messages"][0]["content"]
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == list(answer) == list(schema["properties"])
    assert (engine.running, engine.aborted) == (0, 0)


async def test_the_bounds_of_a_summary_go_along():
    engine = writes(SUMMARY)
    await backend("summary", engine).answer([SummaryRequest(TEXT, 5, 40)])
    (body,) = engine.bodies
    told = body["response_format"]["json_schema"]["schema"]["properties"]["summary"]
    assert (told["minLength"], told["maxLength"]) == (10, 160)
    assert body["max_tokens"] > 160


async def test_requests_that_come_together_are_asked_at_once():
    engine = writes(RATING, seconds_per_token=0.05)
    answering = asyncio.create_task(backend("sentiment", engine).answer([f"text {number}" for number in range(8)]))
    async with asyncio.timeout(5):
        while engine.running < 8:  # noqa: ASYNC110 - another task's
            await asyncio.sleep(0.005)
    assert len(await answering) == 8


@pytest.mark.parametrize("task", BUILDERS)
async def test_an_answer_that_is_no_json_of_the_schema_is_told(task):
    for words in (('{"label":',), ("4", "stars"), ("null",), ("{}",), ('{"entities":', "[1]}")):
        with pytest.raises(EngineFailed, match="broke off before its answer was complete") as caught:
            await backend(task, FakeEngine(words=words)).answer([ASKED[task]])
        assert caught.value.stage == task


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            {"message": "This model's maximum context length is 99 tokens.", "code": 400},
            ContextLengthExceeded,
            "longer than",
        ),
        ({"message": "No such thing.", "code": 400}, EngineFailed, "refuses the question of this step: No such thing"),
        ({"message": "The grammar is faulty.", "code": 400}, EngineFailed, "refuses the question of this step"),
        ({"message": "EngineCore encountered an issue.", "code": 500}, ReplicaLost, "is being started again"),
        ({"message": "Out of memory.", "code": 500}, EngineFailed, "gave up on this request"),
    ],
)
async def test_what_the_engine_says_no_to_is_told_in_words_of_the_step(error, kind, words):
    engine = FakeEngine(fail_after=0, error=error)
    with pytest.raises(kind, match=words):
        await backend("sentiment", engine).answer([TEXT])
    assert engine.running == 0


async def test_an_answer_that_nobody_waits_for_is_aborted():
    engine = writes(RATING, seconds_per_token=60)
    answering = asyncio.create_task(backend("sentiment", engine).answer([TEXT, TEXT]))
    async with asyncio.timeout(5):
        while engine.running < 2:  # noqa: ASYNC110 - another task's
            await asyncio.sleep(0.005)
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    assert (engine.running, engine.aborted) == (0, 2)


# --- whole applications -----------------------------------------------------------------------------------------------


class Judge:
    """Lets all pass, and notes what it judged."""

    def __init__(self):
        self.asked = []

    async def call(self, request, deadline):
        self.asked.append((request.direction, request.texts[0]))
        return Verdict("allow", (), request.texts)


def step(task, engine):
    found = backend(task, engine)

    async def run(value, deadline):
        (answer,) = await found.answer([value])
        return answer

    return run


async def prepare(request, deadline):
    return Prepared(request.text, "en", 75)


class Site:
    """Both applications over engines that the test has."""

    def __init__(self, **engines):
        self.engines = {"sentiment": writes(RATING), "summary": writes(SUMMARY), "entities": writes(NAMES)} | engines
        self.judge = Judge()
        steps = {task: step(task, engine) for task, engine in self.engines.items()}
        guard = Guard(self.judge, MemoryMetrics(), lambda: "default")
        self.analyze = self._api(
            "analyze",
            Analyze(prepare, steps["sentiment"], steps["summary"], guard, AnalyzeSettings),
            analyze.router,
        )
        self.articles = self._api("articles", Articles(Steps(**steps), None, guard, ArticlesSettings), articles.router)

    def _api(self, name, service, router):
        metrics = MemoryMetrics()
        application = Application(name, service, LimitsConfig, Admission(name, 4, 4, metrics), metrics)
        return build_application(application, router, Surroundings())

    async def post(self, name, **body):
        transport = httpx.ASGITransport(getattr(self, name))
        async with httpx.AsyncClient(transport=transport, base_url="http://baton") as client:
            return await client.post(f"/{name}", json=body)


async def test_analyze_answers_from_the_core_llm_and_its_summary_is_judged_again():
    site = Site()
    reply = (await site.post("analyze", text=TEXT)).json()
    assert (reply["sentiment"], reply["summary"]) == (RATING, SUMMARY["summary"])
    assert site.judge.asked == [("input", TEXT), ("output", SUMMARY["summary"])]


async def test_articles_answers_from_the_core_llm_unless_the_article_is_negative():
    site = Site()
    reply = (await site.post("articles", text=TEXT)).json()
    assert (reply["success"], reply["summary"], reply["named_entities"]) == (
        True,
        SUMMARY["summary"],
        ["Ada Lovelace", "London"],
    )
    site = Site(sentiment=writes({"label": "1 star", "score": 0.99}))
    assert not (await site.post("articles", text=TEXT)).json()["success"]
    assert site.engines["summary"].bodies == []


async def test_a_fault_of_one_branch_aborts_the_other():
    error = {"message": "EngineCore encountered an issue.", "code": 500}
    site = Site(sentiment=FakeEngine(fail_after=0, error=error), summary=writes(SUMMARY, seconds_per_token=60))
    reply = await site.post("analyze", text=TEXT)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "stage_unavailable")
    assert site.engines["summary"].running == 0


class Call:
    """A gRPC call with a status and no metadata."""

    code = None

    def invocation_metadata(self):
        return []

    def set_code(self, code):
        self.code = code

    def set_details(self, details):
        self.details = details

    def set_trailing_metadata(self, trailing):
        self.trailing = dict(trailing)


@pytest.mark.parametrize("way", ["http", "grpc"])
@pytest.mark.parametrize("name", ["analyze", "articles"])
async def test_the_deadline_that_a_caller_names_holds_and_frees_the_engine(way, name):
    site, began = Site(sentiment=writes(RATING, seconds_per_token=60)), time.monotonic()
    if way == "http":
        reply = await site.post(name, text=TEXT, timeout_seconds=0.2)
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    else:
        call = Call()
        rpc = RpcService(getattr(site, name), lambda: 600.0)
        asked = pb.AnalyzeRequest if name == "analyze" else pb.ArticlesRequest
        await getattr(rpc, name)(asked(text=TEXT, timeout_seconds=0.2), call)
        assert (call.code, call.trailing["baton-code"]) == (grpc.StatusCode.DEADLINE_EXCEEDED, "deadline_exceeded")
    assert time.monotonic() - began < 5
    assert site.engines["sentiment"].running == 0
