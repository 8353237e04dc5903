"""Variants of a profile on the running pipeline: weights, rules, names and shadows, changed while it serves."""

import json
import re
import subprocess

import httpx
import pytest
import yaml

from tests.app.baton import ROOT

DOCS = (ROOT / "docs" / "routing.md").read_text("utf-8")
OUTCOMES = "ray_baton_variant_outcomes_total"
CANARY = {"systemPrompt": "You are a terse assistant. " * 12, "sampling": {"temperature": 0.5}}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS, re.M | re.S)


def routed(baton, **routing):
    """Deploy routing for the profile `plain`, and wait until it is in force."""

    def change(raw):
        raw["settings"]["routing"] = {"plain": routing}

    baton.deploy(change)
    weights = {f"plain@{name}": found.get("weight", 0) for name, found in routing["variants"].items()}
    baton.wait_for(lambda: listed(baton) == weights, 30, "the variants are listed with their weights")


def listed(baton):
    entries = baton.http.get("/v1/models").json()["data"]
    return {entry["id"]: entry["weight"] for entry in entries if entry["kind"] == "variant"}


def variant_of(baton, content="hi", **body):
    reply = baton.chat(content, model="plain", max_tokens=2, **body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-baton-variant"] == reply.json()["baton"]["variant"]["name"]
    return reply.headers["x-baton-variant"]


@pytest.fixture
def back(baton):
    yield
    baton.deploy()


@pytest.mark.timeout(600)
def test_callers_stay_while_weights_change_and_nothing_restarts(baton, back):
    variants = {"stable": {"weight": 1}, "canary": {"weight": 1, **CANARY}}
    routed(baton, sticky="user", variants=variants)
    callers = [f"caller-{number}" for number in range(16)]
    before = {caller: variant_of(baton, user=caller) for caller in callers}
    assert before == {caller: variant_of(baton, user=caller) for caller in callers}
    assert set(before.values()) == {"stable", "canary"}

    seen = baton.scrape("ray_vllm_request_success_total")
    routed(baton, sticky="user", variants={**variants, "canary": {"weight": 9, **CANARY}})
    after = {caller: variant_of(baton, user=caller) for caller in callers}
    assert all(after[caller] == "canary" for caller in callers if before[caller] == "canary")
    assert sum(found == "canary" for found in after.values()) > sum(found == "canary" for found in before.values())
    assert baton.scrape("ray_vllm_request_success_total") >= seen, "the engine was not restarted"

    routed(baton, sticky="user", variants={**variants, "canary": {"weight": 0, **CANARY}})
    assert {variant_of(baton, user=caller) for caller in callers} == {"stable"}
    for variant in ("stable", "canary"):
        rows = (f'variant="{variant}"', 'way="weight"', 'outcome="answered"')
        baton.wait_for(lambda rows=rows: baton.scrape(OUTCOMES, *rows) >= 1, 60, rows)
        assert baton.scrape("ray_baton_requests_total", f'variant="{variant}"', 'status="200"') >= 1
        assert baton.scrape("ray_baton_time_to_first_token_milliseconds_count", f'variant="{variant}"') >= 1


@pytest.mark.timeout(300)
def test_rules_names_and_a_shadow(baton, back):
    routed(
        baton,
        variants={"stable": {"weight": 1}, "canary": CANARY},
        rules=[{"when": {"promptTokensBelow": 40}, "variant": "canary"}],
        shadow=[{"variant": "canary"}],
    )
    long = "Tell me more about the guardrail, the retriever and the assembler of this pipeline. " * 6
    assert variant_of(baton, "hi") == "canary"
    assert variant_of(baton, long) == "stable"

    by_name = baton.chat(long, model="plain@canary", max_tokens=2).json()
    plain = baton.chat(long, model="plain@stable", max_tokens=2).json()
    assert by_name["baton"]["variant"] == {"profile": "plain", "model": "smollm2", "name": "canary"}
    assert by_name["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 40, "its own system prompt"
    body = {"prompt": "One, two,", "max_tokens": 2, "stream": True}
    streamed = baton.http.post("/plain@canary/v1/completions", json=body)
    assert '"name":"canary"' in streamed.text
    unknown = baton.chat(model="plain@nope")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")

    baton.wait_for(lambda: baton.scrape(OUTCOMES, 'way="shadow"', 'outcome="answered"') >= 1, 90, "a copy was answered")
    first = "ray_baton_time_to_first_token_milliseconds_count"
    baton.wait_for(lambda: baton.scrape(first, 'variant="canary~shadow"') >= 1, 60, "and measured apart")


@pytest.mark.timeout(300)
def test_settings_that_name_nobody_leave_the_old_ones_in_force(baton, back):
    routed(baton, variants={"stable": {"weight": 1}})
    with pytest.raises(Exception, match="weights of all variants are 0"):
        routed(baton, variants={"stable": {"weight": 0}})
    assert variant_of(baton) == "stable"


@pytest.mark.timeout(300)
def test_what_the_page_shows_works(baton, back):
    (settings, _) = (yaml.safe_load(block) for block in blocks("yaml"))
    routed(baton, **settings["settings"]["routing"]["plain"])
    by_user, by_name, report = (
        text.replace("http://127.0.0.1:8000", baton.base).replace("http://127.0.0.1:9464/metrics", baton.metrics)
        for text in blocks("sh")
    )
    assert json.loads(run(by_user))["baton"]["variant"]["name"] in {"stable", "canary"}
    assert json.loads(run(by_name))["baton"]["variant"]["name"] == "canary"
    baton.wait_for(lambda: "canary" in httpx.get(baton.metrics, timeout=20).text, 60, "counted")
    shown = run(report)
    assert "canary" in shown
    assert "Difference to" in shown
    assert variant_of(baton, "护栏做什么？") == "curt"


def run(command):
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
