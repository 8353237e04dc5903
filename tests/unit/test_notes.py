"""What ordinary and unlucky requests leave in the metrics."""

import asyncio
import time

import pytest

from app.api.context import Observed
from app.errors import DeadlineExceeded, GuardrailBlocked
from app.jobs import Started
from app.messages import Message, RetrievalQuery, Verdict
from app.metrics import MemoryMetrics
from app.notes import note_index, note_request, note_verdict
from app.testing.engine import FakeEngine
from tests.unit.site import Site, job

QUESTION = "What code word has the zebra note?"


async def test_an_answer_leaves_its_times_and_its_worth(tmp_path):
    site = Site(tmp_path, FakeEngine(["The", "code", "word", "is", "ZEBRA-77."], seconds_per_token=0.02))
    await site.ask(job(QUESTION, retrieve=True, response_format={"type": "json_object"}))
    count, total = site.metrics.count, site.metrics.total
    assert count("baton_time_to_first_token_milliseconds", model="tiny") == 1
    assert count("baton_inter_token_milliseconds", model="tiny") == 1
    assert 0 < total("baton_inter_token_milliseconds") < 500
    for stage in ("guardrail", "retriever", "assembler", "generator", "postprocessor"):
        assert count("baton_stage_milliseconds", stage=stage) == 1
    for stage in ("gateway", "retriever", "assembler", "postprocessor"):
        assert count("baton_queue_milliseconds", stage=stage) == 1
    for part in ("embed", "search"):
        assert count("baton_retrieval_milliseconds", part=part) == 1
    assert 0 < total("baton_retrieval_score") <= 1
    assert total("baton_retrieval_empty_total") == 0
    assert total("baton_json_total", status="invalid") == 1
    assert count("baton_grounding", profile="default") == 1
    assert count("baton_confidence", profile="default") == 1
    assert total("baton_tokens_total", direction="out") == 5
    assert total("baton_guardrail_total", direction="output", action="allow", category="none") == 1
    assert count("baton_handoff_milliseconds", hop="retriever-gateway", path="inline") == 1
    assert 0 <= total("baton_handoff_milliseconds") < 1000
    assert (total("baton_queued"), total("baton_ongoing")) == (0, 0)


async def test_an_answer_of_one_piece_has_no_interval(tmp_path):
    site = Site(tmp_path, FakeEngine(["Yes."]))
    await site.ask(job())
    assert site.metrics.count("baton_inter_token_milliseconds") == 0


async def test_a_retrieval_without_passages_is_counted(tmp_path):
    site = Site(tmp_path)
    await site.ask(job(retrieval=RetrievalQuery("zebra", ("notes",), 2, 3, filter={"lang": "xx"})))
    assert site.metrics.total("baton_retrieval_empty_total") == 1
    assert site.metrics.count("baton_retrieval_score") == 0


async def test_turns_and_passages_that_do_not_fit_are_counted(tmp_path):
    site = Site(tmp_path)
    long = tuple(Message(role, "ant " * 700) for _ in range(3) for role in ("user", "assistant"))
    await site.ask(job(messages=(*long, Message("user", "zebra")), retrieve=True))
    assert site.metrics.total("baton_cut_turns_total") > 0
    assert site.metrics.total("baton_cut_passages_total") > 0


async def test_requests_at_work_and_in_the_queue_are_shown(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=0.05), max_ongoing=1, max_queued=4)
    asked = [asyncio.create_task(site.ask(job())) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert site.metrics.total("baton_ongoing", stage="gateway") == 1
    assert site.metrics.total("baton_queued", stage="gateway") == 2
    await asyncio.gather(*asked)
    assert site.metrics.total("baton_queued", stage="gateway") == 0
    assert site.metrics.total("baton_queue_milliseconds", stage="gateway") > 100


async def test_a_deadline_is_counted_where_it_passed(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=5), max_ongoing=1)
    first = asyncio.create_task(site.ask(job(deadline=time.monotonic() + 0.3)))
    await asyncio.sleep(0.05)
    with pytest.raises(DeadlineExceeded):
        await site.ask(job(deadline=time.monotonic() + 0.05))
    with pytest.raises(DeadlineExceeded):
        await first
    assert site.metrics.total("baton_timeouts_total", stage="gateway") == 1
    assert site.metrics.total("baton_timeouts_total", stage="generator") == 1


async def test_a_deadline_that_an_embedding_waits_for_is_counted(tmp_path):
    site = Site(tmp_path)
    site.runners["guardrail"].delay = 5
    with pytest.raises(DeadlineExceeded):
        await site.pipeline.embed(["zebra"], "default", time.monotonic() + 0.05)
    assert site.metrics.total("baton_timeouts_total", stage="guardrail") == 1


async def test_a_hang_up_leaves_what_was_read(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=0.01))
    events = site.pipeline.chat(job(max_tokens=10))
    assert isinstance(await anext(events), Started)
    await anext(events)
    await anext(events)
    await events.aclose()
    assert site.metrics.count("baton_inter_token_milliseconds") == 1
    assert site.metrics.total("baton_ongoing") == 0


async def test_a_block_is_counted_by_category_and_direction(tmp_path):
    site = Site(tmp_path)
    with pytest.raises(GuardrailBlocked):
        await site.ask(job("build a bomb"))
    assert site.metrics.total("baton_guardrail_total", direction="input", action="block") == 1
    assert site.metrics.total("baton_guardrail_total", category="none") == 0


def test_a_request_is_counted_and_timed_by_its_class():
    metrics = MemoryMetrics()
    note_request(metrics, Observed("/generate", 200, "default", "batch", "answered", 0.5))
    assert metrics.count("baton_requests_total", priority="batch", route="/generate") == 1
    assert metrics.total("baton_request_milliseconds", priority="batch", outcome="answered") == 500


def test_a_verdict_without_some_rule_is_counted():
    metrics = MemoryMetrics()
    note_verdict(metrics, "input", Verdict("allow", (), ("x",), failed_open=True))
    assert metrics.total("baton_guardrail_failed_open_total", direction="input") == 1


def test_the_index_is_shown_by_collection_and_never_without_bound(tmp_path):
    site = Site(tmp_path)
    noted = note_index(site.metrics, site.stages["retriever"].list_collections(), frozenset())
    assert noted == {"notes"}
    assert site.metrics.total("baton_index_documents", collection="notes") == 3
    many = [{"name": f"c{number}", "passages": number, "documents": 1} for number in range(60)]
    noted = note_index(site.metrics, many, noted)
    assert len(noted) == 51
    assert site.metrics.total("baton_index_documents", collection="other") == 10
    assert not site.metrics.holds("baton_index_passages", collection="notes")


def test_a_collection_that_is_gone_is_forgotten_and_one_without_passages_is_not():
    metrics = MemoryMetrics()
    both = [{"name": name, "passages": 4, "documents": 2} for name in ("kept", "gone")]
    noted = note_index(metrics, both, frozenset())
    noted = note_index(metrics, [{"name": "kept", "passages": 0, "documents": 0}], noted)
    assert noted == {"kept"}
    for metric in ("baton_index_passages", "baton_index_documents"):
        assert metrics.holds(metric, collection="kept")
        assert metrics.total(metric, collection="kept") == 0
        assert not metrics.holds(metric, collection="gone")
