"""Spans of a whole pipeline in this process, as a collector gets them; and that nothing is done where it is off."""

import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from app.admission import Admission
from app.config.observing import TracesConfig
from app.errors import ConfigError, DeadlineExceeded, InvalidRequest
from app.handles import LocalCall, RemoteCall
from app.messages import GenerateRequest
from app.metrics import MemoryMetrics
from app.span_facts import question_of
from app.traces import NO_SPAN, OFF, Traces, current_carrier, current_trace_id
from tests.collector import Collector
from tests.unit.site import Site, job
from tests.unit.test_handles import Handle, Response

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}


@pytest.fixture
def collector():
    with Collector() as found:
        yield found


@pytest.fixture
def traces(collector):
    made = Traces("gateway")
    made.configure(TracesConfig(endpoint=collector.endpoint))
    yield made
    made.close()


def traced(site, traces):
    """Give a site's stages the process's traces."""
    from dataclasses import replace

    site.pipeline._stages = replace(site.pipeline._stages, traces=traces)
    for name in site.stages:
        getattr(site.pipeline._stages, name)._traces = traces
    return site


async def ask(site, traces, **given):
    with traces.request("POST", SENT) as root:
        events = await site.ask(job("zebra XYLOPHONE", retrieve=True, **given))
    return root, events


async def test_every_stage_has_a_span_under_the_requests(tmp_path, traces, collector):
    site = traced(Site(tmp_path), traces)
    root, _ = await ask(site, traces)
    traces.close()
    spans = collector.of_trace(TRACE)
    (top,) = [span for span in spans if span.kind == "server"]
    assert (top.parent, top.service) == ("00f067aa0ba902b7", "baton-gateway")
    assert root.traceparent == f"00-{TRACE}-{top.id}-01"
    below = [span for span in spans if span.parent == top.id]
    assert sorted(span.name for span in below) == [
        *("assembler", "generator", "guardrail", "guardrail", "guardrail", "postprocessor", "retriever")
    ]
    generator = next(span for span in below if span.name == "generator")
    assert site.engine.traces[0]["traceparent"] == f"00-{TRACE}-{generator.id}-01"
    assert site.engine.traces[0]["tracestate"] == "vendor=1"
    assert generator.attributes["gen_ai.request.model"] == "tiny"
    assert generator.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert generator.attributes["gen_ai.usage.output_tokens"] == 10
    assert generator.start <= generator.end
    assert not any(span.failed for span in spans)


async def test_no_text_of_question_or_answer_is_sent(tmp_path, traces, collector):
    await ask(traced(Site(tmp_path), traces), traces)
    traces.close()
    sent = b"".join(collector.raw)
    assert b"generator" in sent
    for text in (b"XYLOPHONE", b"ZEBRA-77", b"collection.", b"Be brief"):
        assert text not in sent


async def test_content_is_sent_where_it_is_asked_for_and_is_bounded(tmp_path, traces, collector):
    traces.configure(TracesConfig(endpoint=collector.endpoint, content=True))
    await ask(traced(Site(tmp_path), traces), traces)
    traces.close()
    (span,) = [span for span in collector.of_trace(TRACE) if span.name == "generator"]
    assert "XYLOPHONE" in span.attributes["gen_ai.input.messages"]
    assert "Baton answers with passages" in span.attributes["gen_ai.output.messages"]
    assert len(question_of(GenerateRequest("tiny", "r1", prompt="x" * 10_000))) == 8192
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    turn = {"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]}
    shown = question_of(GenerateRequest("tiny", "r1", messages=(turn,)))
    assert "what is it?" in shown
    assert "AAAA" not in shown


async def test_a_fault_of_ours_marks_its_span_and_says_no_sentence(traces, collector):
    class Broken:
        async def run(self, request, payload=None):
            raise self.error

    runner = Broken()
    call = LocalCall("assembler", runner, Admission("assembler", 1, 1, MemoryMetrics()), traces)
    for error in (InvalidRequest("SECRET is wrong"), RuntimeError("SECRET broke"), DeadlineExceeded("SECRET late")):
        runner.error = error
        with traces.request("POST", SENT), pytest.raises(Exception, match=r"SECRET|assembler"):
            await call.submit("x").result(time.monotonic() + 5)
    traces.close()
    found = [(s.attributes["error.type"], s.failed) for s in collector.of_trace(TRACE) if s.name == "assembler"]
    assert found == [("invalid_request", False), ("internal_error", True), ("deadline_exceeded", True)]
    assert b"SECRET" not in b"".join(collector.raw)


async def test_a_call_to_another_process_takes_the_trace_along(traces, collector):
    handle = Handle([Response("made"), Response("managed")])
    call = RemoteCall("postprocessor", handle, MemoryMetrics(), traces=traces)
    with traces.request("POST", SENT):
        await call.submit("x").result(time.monotonic() + 5)
        await call.manage("list_collections")
    sent = [keywords["trace"]["traceparent"] for keywords in handle.keywords]
    there = Traces("postprocessor")
    there.configure(TracesConfig(endpoint=collector.endpoint))
    with there.handled("postprocessor", handle.keywords[0]["trace"], None):
        assert current_trace_id() == TRACE
        handed_on = current_carrier()
    assert current_carrier() is None
    there.close()
    traces.close()
    spans = collector.of_trace(TRACE)
    calls = [span for span in spans if span.kind == "client"]
    assert sent == [f"00-{TRACE}-{span.id}-01" for span in calls]
    (work,) = [span for span in spans if span.service == "baton-postprocessor"]
    assert (work.kind, work.parent) == ("server", calls[0].id)
    assert handed_on == {"traceparent": f"00-{TRACE}-{work.id}-01", "tracestate": "vendor=1"}


async def test_embeddings_tell_their_tokens(tmp_path, traces, collector):
    site = traced(Site(tmp_path), traces)
    with traces.request("POST", SENT):
        await site.pipeline.embed(["a zebra"], "default", time.monotonic() + 5)
    traces.close()
    (span,) = [span for span in collector.of_trace(TRACE) if span.name == "retriever"]
    assert span.attributes["gen_ai.operation.name"] == "embeddings"
    assert span.attributes["gen_ai.usage.input_tokens"] > 0
    assert span.attributes["code.function.name"] == "embed_queries"


async def test_a_cancelled_call_ends_its_span(traces, collector):
    call = RemoteCall("postprocessor", Handle([Response("late", seconds=30)]), MemoryMetrics(), traces=traces)
    with traces.request("POST", SENT):
        pending = call.submit("x")
        await asyncio.sleep(0.01)
        pending.cancel()
        await asyncio.sleep(0.01)
    traces.close()
    (span,) = [span for span in collector.of_trace(TRACE) if span.kind == "client"]
    assert (span.attributes["error.type"], span.failed) == ("cancelled", False)


async def test_a_batch_links_to_its_requests(traces, collector):
    with ExitStack() as stack:
        spans = []
        for number in range(3):
            stack.enter_context(traces.request("POST", {"traceparent": f"00-{number + 1:032x}-00f067aa0ba902b7-01"}))
            spans.append(traces.current())
        with traces.batch("retriever", [*spans, None]):
            pass
    traces.close()
    (batch,) = [span for span in collector.spans if span.name == "retriever batch"]
    assert batch.attributes["baton.batch.size"] == 4
    assert batch.trace == f"{1:032x}"
    asked = {span.id: span for span in collector.spans if span.kind == "server"}
    assert set(batch.links) == set(asked)
    assert [asked[link].links for link in batch.links] == [(), (batch.id,), (batch.id,)]


async def test_without_a_request_there_is_no_span(traces):
    assert traces.stage("retriever") is NO_SPAN
    assert traces.handled("retriever", None, None) is NO_SPAN
    assert traces.batch("retriever", [None]) is NO_SPAN


async def test_a_share_is_sampled_and_a_callers_no_is_heeded(collector):
    some = Traces("gateway")
    some.configure(TracesConfig(endpoint=collector.endpoint, sampling_ratio=0.25))
    for _ in range(400):
        with some.request("POST", {}):
            pass
    for _ in range(10):
        with some.request("POST", {"traceparent": SENT["traceparent"][:-1] + "0"}) as span:
            assert span.traceparent.endswith("-00")
    some.close()
    assert 50 < len(collector.spans) < 160
    assert collector.of_trace(TRACE) == []


async def test_a_collector_that_is_gone_costs_a_request_nothing(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("app.live_traces._complained", -60.0)
    gone = Traces("gateway")
    gone.configure(TracesConfig(endpoint="http://127.0.0.1:9/v1/traces"))
    site = traced(Site(tmp_path), gone)
    start = time.monotonic()
    for _ in range(20):
        _, events = await ask(site, gone)
        assert events
    for _ in range(5_000):  # more than the queue holds
        with gone.request("POST", SENT):
            pass
    assert time.monotonic() - start < 20
    start = time.monotonic()
    gone.close()
    assert time.monotonic() - start < 4
    told = [record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]
    assert len(told) == 1, "one line a minute"


async def test_it_is_switched_live(tmp_path, traces, collector):
    site = traced(Site(tmp_path), traces)
    traces.configure(TracesConfig())
    assert not traces.on
    root, events = await ask(site, traces)
    assert root is NO_SPAN
    assert events
    assert site.engine.traces == [None]
    traces.configure(TracesConfig(endpoint=collector.endpoint))
    await ask(site, traces)
    traces.close()
    assert {span.name for span in collector.of_trace(TRACE)} >= {"retriever", "generator"}


def test_off_imports_nothing_and_makes_nothing():
    """In a process of its own: other tests of this one have imported the SDK."""
    code = (
        "import sys; from app.api.application import build_api; from app.handles import LocalCall; "
        "from app.traces import NO_SPAN, OFF, current_trace_id; from app.pipeline import Pipeline; "
        "assert OFF.request('POST', {}) is OFF.stage('x') is OFF.batch('x', []) is NO_SPAN; "
        "assert OFF.current() is None and current_trace_id() == ''; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_off_allocates_nothing():
    import tracemalloc

    OFF.stage("retriever", None, call=True)
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    kept = [OFF.stage("retriever", None, call=True).handed_on for _ in range(1000)]
    grown = sum(found.size_diff for found in tracemalloc.take_snapshot().compare_to(before, "filename"))
    tracemalloc.stop()
    assert all(found is kept[0] for found in kept)
    assert grown < 30_000  # the list itself and the snapshot's own


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://", 7])
def test_a_wrong_endpoint_is_refused_in_words(endpoint):
    with pytest.raises(ConfigError, match=r"traces\.endpoint: must be"):
        TracesConfig.parse({"endpoint": endpoint}, "traces")
