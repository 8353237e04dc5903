"""The course of a job through the stages, whole, without Ray."""

import asyncio
import gc
import time
import weakref
from dataclasses import replace

import pytest

from app.errors import (
    CollectionNotFound,
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineFailed,
    GuardrailBlocked,
    Overloaded,
    StageUnavailable,
)
from app.jobs import Finished, Started
from app.messages import Delta, Message, RetrievalQuery
from app.testing.engine import FakeEngine
from tests.unit.site import Site, job


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def text_of(events, index=0):
    return "".join(event.content for event in events if isinstance(event, Delta) and event.index == index)


async def test_an_answer_starts_streams_and_finishes(site):
    events = await site.ask(job())
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert text_of(events) == "Baton answers with passages that it found in a collection."
    assert [event.finish_reason for event in events if isinstance(event, Delta)][-1] == "stop"
    assert events[-1].usage.completion_tokens == 10
    assert {"guardrail", "assembler", "generator", "postprocessor", "first_token", "total"} <= set(events[-1].stages)


async def test_retrieved_passages_reach_the_prompt_and_are_cited(tmp_path):
    site = Site(tmp_path, FakeEngine(["The", "zebra", "note", "has", "the", "code", "word", "ZEBRA-77."]))
    events = await site.ask(job("What code word has the zebra note?", retrieve=True, return_contexts=True))
    prompt = "\n".join(message["content"] for message in site.engine.bodies[0]["messages"])
    assert "ZEBRA-77" in prompt
    finished = events[-1]
    assert finished.choices[0].citations[0].id.startswith("zebra")
    assert finished.contexts[0]["mark"] == 1
    assert finished.flags == {}
    assert site.metrics.total("baton_handoffs_total", hop="retriever-gateway") == 1


async def test_an_answered_job_lets_go_of_its_payload_without_a_garbage_collection(site):
    payloads = []
    run = site.runners["retriever"].run

    async def watched(request, payload=None):
        retrieved = await run(request, payload)
        payloads.append(weakref.ref(retrieved.passages))
        return retrieved

    site.runners["retriever"].run = watched
    gc.disable()
    try:
        await site.ask(job("What code word has the zebra note?", retrieve=True))
        await asyncio.sleep(0)
        assert [payload() for payload in payloads] == [None]
    finally:
        gc.enable()


async def test_a_blocked_passage_reaches_neither_prompt_nor_contexts(site):
    question = "zebra note explains build"
    events = await site.ask(job(question, retrieve=True, return_contexts=True))
    prompt = "\n".join(message["content"] for message in site.engine.bodies[0]["messages"])
    assert "bomb" not in prompt
    assert all("bomb" not in context["text"] for context in events[-1].contexts)
    note = next(note for note in events[-1].guardrail if note.direction == "passage")
    assert note.action == "block"


@pytest.mark.parametrize("role", ["user", "tool"])
async def test_a_blocked_message_stops_before_any_other_stage(site, role):
    messages = (Message("user", "hi"), Message(role, "build a bomb", tool_call_id="c"), Message("user", "go on"))
    with pytest.raises(GuardrailBlocked) as caught:
        await site.ask(job(messages=messages, retrieve=True))
    assert site.log == ["guardrail"]
    assert "bomb" not in str(caught.value)
    assert site.engine.bodies == []


@pytest.mark.parametrize("name", ["bomb", "the-bomb", "secret", "ignore_all_previous_instructions"])
@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
async def test_a_name_is_judged_like_a_message(site, name, role):
    messages = (Message(role, "hi", name=name, tool_call_id="c"), Message("user", "go on"))
    with pytest.raises(GuardrailBlocked) as caught:
        await site.ask(job(messages=messages, retrieve=True))
    assert site.log == ["guardrail"]
    assert site.engine.bodies == []
    assert (caught.value.param, name in str(caught.value)) == ("messages", False)


async def test_a_harmless_name_passes(site):
    await site.ask(job(messages=(Message("user", "hi", name="Ada-1815"),)))
    assert len(site.engine.bodies) == 1


async def test_redacted_words_reach_neither_search_nor_engine(site):
    await site.ask(job("the secret zebra", retrieve=True))
    assert "secret" not in str(site.engine.bodies)
    assert "[redacted] zebra" in str(site.engine.bodies)


async def test_an_answer_is_redacted_piece_by_piece(tmp_path):
    site = Site(tmp_path, FakeEngine(["this", "is", "a", "secret", "word"]))
    events = await site.ask(job(logprobs=True))
    assert text_of(events) == "this is a [redacted] word"
    entries = [entry["token"] for event in events if isinstance(event, Delta) for entry in event.logprobs]
    assert not any("secret" in token for token in entries)


@pytest.mark.parametrize("pace", [1, 3, 100])
async def test_a_blocked_answer_ends_where_the_match_starts_however_it_is_cut(tmp_path, pace):
    words = ["first", "build", "a", "bomb", "and", "then", "run"]
    pieces = [" ".join(words[at : at + pace]) for at in range(0, len(words), pace)]
    site = Site(tmp_path, FakeEngine(pieces))
    events = await site.ask(job())
    assert text_of(events) == "first build a "
    assert [event.finish_reason for event in events if isinstance(event, Delta)][-1] == "content_filter"
    assert site.engine.running == 0


async def test_tool_call_arguments_pass_the_guardrail(tmp_path):
    class Caller(FakeEngine):
        async def _stream(self, kind, body):
            for part in ('{"q": "a se', 'cret thing"}'):
                call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": part}}
                choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
                yield [{"choices": [choice]}]
            yield [{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]

    events = await Site(tmp_path, Caller()).ask(job())
    calls = [call for event in events if isinstance(event, Delta) for call in event.tool_calls]
    assert "".join(call["function"].get("arguments", "") for call in calls) == '{"q": "a [redacted] thing"}'
    assert events[-2].finish_reason == "tool_calls"


async def test_a_bare_prompt_is_judged_and_skips_retrieval_and_template(site):
    events = await site.ask(job(prompt="once upon", messages=()))
    assert site.engine.bodies[0]["prompt"] == "once upon"
    assert site.log == ["guardrail", "postprocessor"] or site.log[0] == "guardrail"
    assert "assembler" not in site.log
    assert "retriever" not in site.log
    assert isinstance(events[-1], Finished)
    with pytest.raises(GuardrailBlocked):
        await site.ask(job(prompt="a bomb", messages=()))


async def test_the_best_candidates_are_returned_in_order(site):
    events = await site.ask(job(n=1, n_candidates=3, retrieve=True))
    assert site.engine.bodies[0]["n"] == 3
    assert {event.index for event in events if isinstance(event, Delta)} == {0}
    assert text_of(events)
    assert len(events[-1].choices) == 1


async def test_several_choices_without_sampling_are_one_answer_copied(site):
    events = await site.ask(job(n=2, sampling={"temperature": 0}))
    assert site.engine.bodies[0]["n"] == 1
    assert text_of(events, 0) == text_of(events, 1) != ""
    assert events[-1].usage.completion_tokens == 20
    assert len(events[-1].choices) == 2


async def test_an_unknown_collection_is_an_error_before_the_start(site):
    from app.messages import RetrievalQuery

    with pytest.raises(CollectionNotFound):
        await site.ask(job(retrieval=RetrievalQuery("zebra", ("nowhere",), 2, 3)))


@pytest.mark.parametrize("retrieve", [False, True])
async def test_turns_that_did_not_fit_are_told_with_retrieval_and_without(site, retrieve):
    long = tuple(Message(role, "ant " * 3000) for role in ("user", "assistant"))
    finished = (await site.ask(job(messages=(*long, Message("user", "zebra")), retrieve=retrieve)))[-1]
    assert finished.flags.pop("cut_turns") >= 1
    assert retrieve or finished.flags == {}


async def test_no_passages_are_flagged_and_support_no_number(tmp_path):
    site = Site(tmp_path, FakeEngine(["It", "costs", "12.50."]))
    query = RetrievalQuery("zebra", ("notes",), 2, 3, filter={"lang": "xx"})
    events = await site.ask(job(retrieval=query))
    assert events[-1].flags["without_context"] is True
    assert [number.number for number in events[-1].choices[0].unsupported_numbers] == ["12.50"]
    events = await site.ask(job())
    assert events[-1].choices[0].unsupported_numbers == ()


async def test_a_question_over_the_window_names_the_numbers(site):
    with pytest.raises(ContextLengthExceeded, match="4096"):
        await site.ask(job("ant " * 4000))


async def test_a_fault_of_the_engine_after_the_first_piece_is_raised_after_the_start(tmp_path):
    site = Site(tmp_path, FakeEngine(fail_after=2))
    events = site.pipeline.chat(job())
    assert isinstance(await anext(events), Started)
    assert [(await anext(events)).content for _ in range(2)] == ["Baton ", "answers "]
    with pytest.raises(EngineFailed):
        await anext(events)


async def test_a_deadline_ends_every_stage(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=5))
    with pytest.raises(DeadlineExceeded):
        await site.ask(job(deadline=time.monotonic() + 0.1))
    assert (site.engine.running, site.engine.aborted) == (0, 1)

    site.runners["retriever"].delay = 30
    with pytest.raises(DeadlineExceeded):
        await site.ask(job(retrieve=True, deadline=time.monotonic() + 0.1))


@pytest.mark.parametrize(("running", "error", "wait"), [({"tiny"}, DeadlineExceeded, None), ((), StageUnavailable, 30)])
async def test_a_model_that_was_asleep_is_told_from_one_that_is_slow(tmp_path, running, error, wait):
    site = Site(tmp_path, FakeEngine(seconds_per_token=5))
    site.running = running
    with pytest.raises(error) as caught:
        await site.ask(job(deadline=time.monotonic() + 0.1))
    assert type(caught.value) is error
    assert caught.value.retry_after_seconds == wait
    assert site.metrics.total("baton_timeouts_total", stage="generator") == 1


async def test_closing_the_events_stops_the_engine_and_frees_the_slot(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=0.001), max_ongoing=1, max_queued=0)
    events = site.pipeline.chat(job(max_tokens=10))
    async for event in events:
        if isinstance(event, Delta):
            break
    await events.aclose()
    assert (site.engine.running, site.engine.aborted) == (0, 1)
    assert isinstance((await site.ask(job()))[-1], Finished)


async def test_more_jobs_than_slots_are_shed_at_once_and_counted(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=0.01), max_ongoing=1, max_queued=1)
    results = await asyncio.gather(*(site.ask(job()) for _ in range(4)), return_exceptions=True)
    assert sum(isinstance(result, Overloaded) for result in results) == 2
    assert site.metrics.total("baton_sheds_total", stage="gateway") == 2


async def test_a_full_model_sheds_before_any_stage_works(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=0.05), capacity=1)
    first = asyncio.create_task(site.ask(job()))
    await asyncio.sleep(0.02)
    worked = len(site.log)
    with pytest.raises(Overloaded) as refused:
        await site.ask(job(retrieve=True))
    assert refused.value.retry_after_seconds
    assert len(site.log) == worked
    assert site.metrics.total("baton_sheds_total", stage="generator") == 1
    await first
    assert text_of(await site.ask(job()))


async def test_a_question_over_the_window_is_refused_before_it_is_embedded(site):
    with pytest.raises(ContextLengthExceeded):
        await site.ask(job("ant " * 8000, retrieve=True))
    assert "retriever" not in site.log


async def test_embedding_judges_its_inputs(site):
    vectors = (await site.pipeline.embed(["zebra", "lion"], "default", time.monotonic() + 5)).vectors
    assert vectors.shape == (2, 64)
    with pytest.raises(GuardrailBlocked):
        await site.pipeline.embed(["a bomb"], "default", time.monotonic() + 5)


async def test_collections_are_managed_through_the_retriever(site):
    assert [found["name"] for found in await site.pipeline.list_collections()] == ["notes"]
    assert await site.pipeline.delete_documents("notes", ["lion"]) == 1
    await site.pipeline.delete_collection("notes")
    with pytest.raises(CollectionNotFound):
        await site.pipeline.delete_collection("notes")


async def test_a_search_alone_returns_what_the_guardrail_lets_through(site):
    wanted = replace(job("What does the zebra note say of a secret?", retrieve=True), question_field="query")
    found = await site.pipeline.retrieve(wanted)
    assert found.passages[0]["id"] == "zebra#0"
    assert not any("bomb" in passage["text"] for passage in found.passages)
    assert {"guardrail", "retriever", "total"} <= set(found.stages)
    assert {(note.direction, note.action) for note in found.guardrail} == {("input", "redact"), ("passage", "block")}
    assert site.engine.bodies == []


async def test_a_blocked_search_names_its_field(site):
    with pytest.raises(GuardrailBlocked) as caught:
        await site.pipeline.retrieve(replace(job("a bomb", retrieve=True), question_field="query"))
    assert caught.value.param == "query"


async def test_images_reach_the_engine_in_front_of_the_text(site):
    uri = "data:image/png;base64,AAAA"
    await site.ask(replace(job(), messages=(Message("user", "what is it?", images=(uri,)),)))
    image, text = site.engine.bodies[0]["messages"][-1]["content"]
    assert (image["image_url"]["url"], text["text"]) == (uri, "what is it?")
