"""One trace per request, as a collector gets it from a running pipeline."""

import asyncio
import time

import httpx
import pytest

from tests.app.baton import MODEL
from tests.collector import Collector

#: Words that stand in no document, so that wherever they turn up they came from the question.
QUESTION = "Which stage would a purple xylophone meet first in Baton?"
CALLERS = "00-{trace}-00f067aa0ba902b7-{sampled}"
STAGES = {"guardrail", "retriever", "assembler", "generator", "postprocessor"}
SERVER = "POST /v1/chat/completions"
#: vLLM's own span.
ENGINE = "llm_request"


@pytest.fixture(scope="module")
def collector():
    with Collector() as found:
        yield found


def traced(endpoint, placement, content=False):
    def change(raw):
        raw["settings"]["traces"] = {"endpoint": endpoint, "content": content}
        for name in ("guardrail", "retriever", "assembler", "postprocessor"):
            stage = raw["pipeline"]["stages"][name]
            stage["placement"] = placement
            if placement == "gateway":
                stage.pop("options", None)
            else:
                stage["options"] = {"ray_actor_options": {"num_cpus": 0.1}}
        # On a busy machine questions of one moment come apart, and none would share a batch.
        raw["pipeline"]["stages"]["retriever"]["batchWaitSeconds"] = 0.3
        (model,) = raw["models"]
        model["engine"]["engine_kwargs"]["otlp_traces_endpoint"] = endpoint
        model["env"]["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
        model["env"]["OTEL_SERVICE_NAME"] = "vllm"

    return change


def ask(baton, trace, sampled="01", **body):
    headers = {"traceparent": CALLERS.format(trace=trace, sampled=sampled)}
    asked = {"model": "default", "max_tokens": 16, "messages": [{"role": "user", "content": QUESTION}]} | body
    return baton.http.post("/v1/chat/completions", json=asked, headers=headers)


def one(spans, name, **given):
    found = [span for span in spans if span.name == name and all(getattr(span, k) == v for k, v in given.items())]
    assert len(found) == 1, [(span.name, span.kind, span.service) for span in spans]
    return found[0]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("placement", ["gateway", "deployment"])
def test_a_request_is_one_trace_through_all_stages(baton, collector, placement):
    baton.deploy(traced(collector.endpoint, placement))
    trace = f"{'1' if placement == 'gateway' else '2'}bf92f3577b34da6a3ce929d0e0e4736"
    reply = ask(baton, trace, stream=placement == "deployment")  # plain and streamed replies run in different tasks
    assert reply.status_code == 200
    elsewhere = {(name, "server") for name in STAGES - {"generator"}} if placement == "deployment" else set()
    spans = collector.wait_for(trace, STAGES | elsewhere | {SERVER, ENGINE, "retriever batch"}, 60)

    root = one(spans, SERVER)
    assert (root.kind, root.service, root.parent) == ("server", "baton-gateway", "00f067aa0ba902b7")
    assert reply.headers["traceparent"] == f"00-{trace}-{root.id}-01"
    assert root.attributes["http.response.status_code"] == 200
    assert root.attributes["baton.outcome"] == "answered"
    assert root.attributes["baton.request.id"] == reply.headers["x-request-id"]

    for name in ("retriever", "assembler", "postprocessor"):
        check_stage(spans, name, root, placement)
    directions = {
        span.attributes["baton.guardrail.direction"]
        for span in spans
        if span.name == "guardrail" and span.parent == root.id
    }
    assert directions == {"input", "passage", "output"}
    check_engine(spans, root)
    batch = one(spans, "retriever batch")
    worked = one(spans, "retriever", kind="internal" if placement == "gateway" else "server")
    assert (batch.parent, batch.links) == (worked.id, (worked.id,))
    assert worked.attributes["baton.retriever.passages"] > 0

    by_id = {span.id: span for span in spans}
    for span in spans:
        assert span is root or span.parent in by_id, span
        assert not span.failed, span
    assert b"xylophone" not in b"".join(collector.raw)


def check_stage(spans, name, root, placement):
    """One span in the gateway, or one of the call there and one of the work where the stage runs."""
    if placement == "gateway":
        assert one(spans, name).parent == root.id
        return
    call = one(spans, name, kind="client")
    work = one(spans, name, kind="server")
    assert (call.parent, call.service) == (root.id, "baton-gateway")
    assert (work.parent, work.service) == (call.id, f"baton-{name}")


def check_engine(spans, root):
    call = one(spans, "generator")
    assert call.parent == root.id
    assert call.attributes["gen_ai.request.model"] == MODEL
    assert call.attributes["gen_ai.operation.name"] == "chat"
    assert call.attributes["gen_ai.usage.output_tokens"] > 0
    assert call.attributes["gen_ai.usage.input_tokens"] > 0
    assert "first token" in call.events
    engine = one(spans, ENGINE)
    assert (engine.parent, engine.service) == (call.id, "vllm")


@pytest.mark.timeout(300)
def test_questions_that_are_embedded_together_link_to_each_other(baton, collector):
    """Relies on the deployment of the test before."""
    traces = [f"3bf92f3577b34da6a3ce929d0e0e47{number:02d}" for number in range(8)]

    async def all_at_once():
        async with httpx.AsyncClient(base_url=baton.base, timeout=120) as client:
            asked = {"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": QUESTION}]}
            calls = [
                client.post(
                    "/v1/chat/completions",
                    json=asked,
                    headers={"traceparent": CALLERS.format(trace=trace, sampled="01")},
                )
                for trace in traces
            ]
            return await asyncio.gather(*calls)

    asyncio.run(all_at_once())
    for trace in traces:
        collector.wait_for(trace, {SERVER, ("retriever", "server")})
    spans = [span for trace in traces for span in collector.of_trace(trace)]
    batches = [span for span in spans if span.name == "retriever batch"]
    linked = [link for batch in batches for link in batch.links]
    worked = {span.id: span for span in spans if span.name == "retriever" and span.kind == "server"}
    assert sorted(linked) == sorted(worked), "each question's span is linked from the batch that embedded it"
    biggest = max(batches, key=lambda span: len(span.links))
    assert len(biggest.links) > 1
    assert biggest.attributes["baton.batch.size"] == len(biggest.links)
    for link in biggest.links[1:]:
        assert worked[link].links == (biggest.id,)


@pytest.mark.timeout(300)
def test_what_a_caller_does_not_sample_is_not_traced_anywhere(baton, collector):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    reply = ask(baton, trace, sampled="00")
    assert reply.headers["traceparent"].startswith(f"00-{trace}-")
    assert reply.headers["traceparent"].endswith("-00")
    time.sleep(5)
    assert collector.of_trace(trace) == []


@pytest.mark.timeout(300)
def test_refusals_and_content_and_a_collector_that_is_gone(baton, collector):
    blocked = ask(baton, "5bf92f3577b34da6a3ce929d0e0e4736", messages=[{"role": "user", "content": "a bomb"}])
    assert blocked.status_code == 400
    (root,) = [s for s in collector.wait_for("5bf92f3577b34da6a3ce929d0e0e4736", {SERVER}) if s.name == SERVER]
    assert root.attributes["error.type"] == blocked.json()["error"]["code"]
    assert root.attributes["baton.outcome"] == "blocked"
    assert not root.failed

    baton.deploy(traced(collector.endpoint, "deployment", content=True))
    trace = "6bf92f3577b34da6a3ce929d0e0e4736"
    answer = ask(baton, trace).json()["choices"][0]["message"]["content"]
    generator = one(collector.wait_for(trace, STAGES), "generator")
    assert QUESTION in generator.attributes["gen_ai.input.messages"]
    assert answer[:8] in generator.attributes["gen_ai.output.messages"]

    def away(raw):
        traced(collector.endpoint, "deployment")(raw)
        raw["settings"]["traces"]["endpoint"] = "http://127.0.0.1:9/v1/traces"

    baton.deploy(away)
    start = time.monotonic()
    assert [ask(baton, f"7bf92f3577b34da6a3ce929d0e0e47{n:02d}", max_tokens=4).status_code for n in range(5)] == [
        200
    ] * 5
    assert time.monotonic() - start < 60

    baton.deploy()
    assert "traceparent" not in ask(baton, "8bf92f3577b34da6a3ce929d0e0e4736").headers
