"""Variants over HTTP: who answers, what the reply and the report say, and what a shadow gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from gateway_site import PERSON, SETTINGS, Site

from app.api.resolution import resolve
from app.config.gateway import GatewayConfig
from app.errors import ConfigError
from app.testing.pipeline import FakePipeline

CHAT = "/v1/chat/completions"
VARIANTS: dict[str, Any] = {
    "stable": {"weight": 1},
    "canary": {"weight": 1, "systemPrompt": "Be bold.", "sampling": {"temperature": 1.0}},
    "hidden": {"model": "tooled", "profile": "docs", "retrieval": {"topK": 1}},
}


def configured(**routing: Any) -> GatewayConfig:
    raw = deepcopy(SETTINGS)
    raw["routing"] = {"default": {"variants": VARIANTS, **routing}}
    return GatewayConfig.parse(raw, "settings")


@pytest.fixture
def routed() -> Callable[..., Site]:
    def make(**routing: Any) -> Site:
        return Site(FakePipeline(), configured(**routing))

    return make


async def variant_of(site: Site, headers: dict[str, str] | None = None, **body: Any) -> str | None:
    asked = {"messages": [{"role": "user", "content": "hi"}]} | body
    reply = await site.client.post(CHAT, json=asked, headers=headers)
    assert reply.status_code == 200, reply.text
    found = reply.json()["baton"]["variant"].get("name")
    assert reply.headers.get("x-baton-variant") == found == (site.observed[-1].variant or None)
    return found


# --- who answers ------------------------------------------------------------------------------------------------------


async def test_without_routing_nothing_says_variant(site: Site) -> None:
    assert await variant_of(site) is None
    assert site.job.shadows == ()


async def test_requests_are_spread_by_weight_and_the_variant_is_what_its_keys_say(routed: Callable[..., Site]) -> None:
    site, seen = routed(), Counter[str | None]()
    for _ in range(60):
        found = await variant_of(site)
        seen[found] += 1
        bold = found == "canary"
        assert site.job.system_prompt == ("Be bold." if bold else "Be brief.")
        assert site.job.sampling["temperature"] == (1.0 if bold else 0.5)
        assert (site.job.variant, site.job.way, site.job.max_tokens) == (found, "weight", 64)
    assert seen.keys() == {"stable", "canary"}
    assert min(seen.values()) > 10


@pytest.mark.parametrize(("sticky", "name"), [("user", "user"), ("user", "safety_identifier"), ("session", "")])
async def test_a_caller_stays_with_a_variant(routed: Callable[..., Site], sticky: str, name: str) -> None:
    site = routed(sticky=sticky)
    for number in range(20):
        who = f"caller-{number}"
        given: dict[str, Any] = {name: who} if name else {"headers": {"x-session-id": who}}
        assert len({await variant_of(site, **given) for _ in range(3)}) == 1


async def test_who_does_not_say_who_he_is_is_drawn_by_request(routed: Callable[..., Site]) -> None:
    site = routed(sticky="user")
    for odd in ({}, {"user": ""}, {"user": None}):
        assert {await variant_of(site, **odd) for _ in range(24)} == {"stable", "canary"}


async def test_weights_change_between_two_requests(routed: Callable[..., Site]) -> None:
    site = routed(sticky="user")
    before = {number: await variant_of(site, user=f"u{number}") for number in range(40)}
    site.config = configured(sticky="user", variants={**VARIANTS, "canary": {**VARIANTS["canary"], "weight": 9}})
    after = {number: await variant_of(site, user=f"u{number}") for number in range(40)}
    assert all(after[number] == "canary" for number, found in before.items() if found == "canary")
    assert Counter(after.values())["canary"] > Counter(before.values())["canary"]


async def test_every_endpoint_of_answers_is_routed(routed: Callable[..., Site]) -> None:
    site = routed(variants={"canary": {"weight": 1, "policy": "strict", "systemPrompt": "Be bold."}})
    for path, body in (
        ("/v1/completions", {"prompt": "hi"}),
        ("/default/v1/completions", {"prompt": "hi"}),
        ("/generate", {"prompt": "hi"}),
        (CHAT, {"messages": [{"role": "user", "content": "hi"}], "stream": True}),
    ):
        reply = await site.client.post(path, json=body)
        assert reply.headers["x-baton-variant"] == "canary"
        assert site.job.policy == "strict"
        assert '"name":"canary"' in reply.text


async def test_a_variant_may_have_a_response_format_of_its_own(routed: Callable[..., Site]) -> None:
    checked = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    site = routed(variants={"strict": {"weight": 1, "responseFormat": checked}})
    assert await variant_of(site) == "strict"
    assert site.job.response_format is not None
    assert site.job.response_format["json_schema"]["schema"] == PERSON


# --- by name ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"model": "default@hidden"}),
        (CHAT, {"profile": "default@hidden"}),
        (f"/default@hidden{CHAT}", {}),
        (f"/default{CHAT}", {"model": "default@hidden"}),
        (CHAT, {"model": "default@hidden", "profile": "default"}),
    ],
)
async def test_a_variant_is_a_model_name(routed: Callable[..., Site], path: str, body: dict[str, Any]) -> None:
    site = routed(shadow=[{"variant": "canary"}])
    site.pipeline.collections["probe"] = site.pipeline.collections.get("probe") or _probe()
    reply = await site.ask(path, **body)
    assert reply.json()["baton"]["variant"] == {"profile": "default", "model": "tooled", "name": "hidden"}
    assert (site.job.way, site.job.shadows) == ("name", ())
    assert site.job.retrieval is not None
    assert site.job.retrieval.top_k == 1


def _probe() -> Any:
    from app.testing.pipeline import FakeCollection

    return FakeCollection({"a": {"text": "A note."}})


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"model": "default@nope"}, 404, "There is no model or profile 'default@nope'"),
        ({"profile": "docs@canary"}, 404, "There is no profile 'docs@canary'"),
        ({"model": "canary"}, 404, "There is no model or profile 'canary'"),
        ({"model": "default@canary", "profile": "default@stable"}, 400, "two variants"),
        ({"model": "default@canary", "profile": "docs"}, 400, "two profiles"),
    ],
)
async def test_names_that_are_wrong(routed: Callable[..., Site], body: dict[str, Any], status: int, told: str) -> None:
    reply = await routed().ask(**body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (status, "invalid_request_error")
    assert told in reply.json()["error"]["message"]


async def test_who_names_a_model_is_not_routed(routed: Callable[..., Site]) -> None:
    site = routed()
    assert await variant_of(site, model="smol") is None
    assert await variant_of(site, model="smol", profile="default") is None


async def test_variants_are_listed_and_described(routed: Callable[..., Site]) -> None:
    site = routed()
    listed = {entry["id"]: entry for entry in (await site.client.get("/v1/models")).json()["data"]}
    assert listed["default@hidden"]["kind"] == "variant"
    assert (listed["default@canary"]["weight"], listed["default@hidden"]["weight"]) == (1, 0)
    assert (await site.client.get("/v1/models/default@hidden")).json()["model"] == "tooled"
    assert (await site.client.get("/default@hidden/v1/models")).status_code == 200


def test_what_a_key_must_allow_is_the_name_that_was_asked_for() -> None:
    config = configured()
    asked = {
        (path, profile, model): resolve(config, path, profile, model).asked
        for path, profile, model in (
            (None, None, None),
            ("docs", None, "smol"),
            (None, "default@canary", None),
            (None, None, "tooled"),
        )
    }
    assert list(asked.values()) == ["default", "docs", "default@canary", "tooled"]


# --- rules ------------------------------------------------------------------------------------------------------------


async def test_rules_come_before_weights(routed: Callable[..., Site]) -> None:
    site = routed(
        rules=[
            {"when": {"jsonAsked": True}, "variant": "canary"},
            {"when": {"priority": "batch"}, "model": "tooled"},
            {"when": {"busyAbove": 0.5}, "model": "tooled"},
        ]
    )
    for _ in range(8):
        assert await variant_of(site, response_format={"type": "json_object"}) == "canary"
        assert await variant_of(site, priority="batch") == "tooled"
        assert (site.job.model, site.job.way, site.job.system_prompt) == ("tooled", "rule", "Be brief.")
    site.pipeline.rescript(busy={"smol": 0.9})
    assert await variant_of(site) == "tooled"


async def test_rules_alone_leave_the_rest_to_the_profile(routed: Callable[..., Site]) -> None:
    site = routed(variants={}, rules=[{"when": {"promptTokensBelow": 20}, "model": "tooled"}])
    assert await variant_of(site) == "tooled"
    assert await variant_of(site, messages=[{"role": "user", "content": "word " * 200}]) == "smol"
    assert site.job.way == "weight"


# --- shadows ----------------------------------------------------------------------------------------------------------


async def test_a_shadow_gets_a_copy_under_its_own_variant(routed: Callable[..., Site]) -> None:
    site = routed(variants={**VARIANTS, "canary": {"systemPrompt": "Be bold."}}, shadow=[{"variant": "canary"}])
    reply = await site.ask(rag={"enabled": False, "return_contexts": True}, timeout_seconds=9)
    assert reply.json()["baton"]["variant"]["name"] == "stable"
    (shadow,) = site.job.shadows
    assert (shadow.variant, shadow.profile) == ("canary", "default")
    assert 8 < shadow.seconds <= 9
    copy = shadow.job
    assert copy is not None
    assert (copy.system_prompt, copy.way, copy.variant_label) == ("Be bold.", "shadow", "canary~shadow")
    assert (copy.priority, copy.return_contexts, copy.shadows) == ("batch", False, ())
    assert copy.request_id != site.job.request_id


async def test_what_a_shadow_would_refuse_is_answered_all_the_same(routed: Callable[..., Site]) -> None:
    site = routed(variants={"a": {"weight": 1, "model": "tooled"}, "b": {"model": "smol"}}, shadow=[{"variant": "b"}])
    tool = {"type": "function", "function": {"name": "look"}}
    assert (await site.ask(tools=[tool])).status_code == 200
    assert [(shadow.variant, shadow.job) for shadow in site.job.shadows] == [("b", None)]


async def test_a_share_of_requests_is_shadowed_and_never_by_who_answers(routed: Callable[..., Site]) -> None:
    site, copies = routed(shadow=[{"variant": "canary", "share": 0.5}]), 0
    for _ in range(60):
        answered = await variant_of(site)
        assert answered != "canary" or not site.job.shadows
        copies += len(site.job.shadows)
    assert 4 < copies < 28


# --- limits of a profile ----------------------------------------------------------------------------------------------


async def test_a_profile_has_caps_of_its_own() -> None:
    raw = deepcopy(SETTINGS)
    raw["profiles"]["tight"] = {"model": "smol", "limits": {"maxTokens": 32, "contextTokens": 256}}
    site = Site(FakePipeline(), GatewayConfig.parse(raw, "settings"))
    refused = await site.ask(f"/tight{CHAT}", max_tokens=33)
    assert refused.status_code == 400
    assert "over the limit of 32" in refused.json()["error"]["message"]
    await site.ask(f"/tight{CHAT}")
    assert (site.job.max_tokens, site.job.context_tokens) == (32, 256)
    await site.ask(max_tokens=33)
    assert (site.job.max_tokens, site.job.context_tokens) == (33, None)


# --- refusals ---------------------------------------------------------------------------------------------------------

ONE = {"one": {"weight": 1}}


@pytest.mark.parametrize(
    ("routing", "told"),
    [
        ({"nope": {"variants": ONE}}, "routing names 'nope', which profiles does not hold"),
        ({"default": {}}, "name variants or rules"),
        ({"default": {"variants": {"a": {}, "b": {"weight": 0}}}}, "weights of all variants are 0"),
        ({"default": {"variants": {"a": {"weight": -1}}}}, "routing.default.variants.a.weight"),
        ({"default": {"variants": {"a": {"weight": float("inf")}}}}, "routing.default.variants.a.weight"),
        ({"default": {"variants": {"a": {"weight": float("nan")}}}}, "routing.default.variants.a.weight"),
        ({"default": {"variants": {"a@b": {"weight": 1}}}}, "a@b"),
        ({"default": {"variants": {"docs": {"weight": 1}}}}, "variants.docs has the name of a profile or model"),
        ({"default": {"variants": {"smol": {"weight": 1}}}}, "variants.smol has the name of a profile or model"),
        ({"default": {"variants": {"a": {"weight": 1, "model": "nope"}}}}, "variants.a.model names 'nope'"),
        ({"default": {"variants": {"a": {"weight": 1, "profile": "nope"}}}}, "variants.a.profile names 'nope'"),
        ({"default": {"variants": {"a": {"weight": 1, "colour": 1}}}}, "colour"),
        (
            {"default": {"variants": {"a": {"weight": 1, "retrieval": {"enabled": True}}}}},
            "routing.default.variants.a: with what its profile has: retrieval: collections must name",
        ),
        ({"default": {"variants": {"a": {"weight": 1, "retrieval": {"topK": 99}}}}}, "variants.a"),
        ({"default": {"variants": {"a": {"weight": 1, "nCandidates": 9}}}}, "variants.a.nCandidates is 9"),
        ({"default": {"variants": {"a": {"weight": 1, "limits": {"maxTokens": 32}}}}}, "variants.a.sampling.maxTokens"),
        ({"default": {"variants": ONE, "sticky": "ip"}}, "sticky"),
        ({"default": {"variants": ONE, "shadow": [{"variant": "two"}]}}, "shadow[0].variant names 'two'"),
        ({"default": {"variants": ONE, "shadow": [{"variant": "one"}] * 2}}, "shadow names a variant twice"),
        ({"default": {"variants": ONE, "shadow": [{"variant": "one", "share": 0}]}}, "shadow[0].share"),
        (
            {"default": {"variants": ONE, "rules": [{"when": {"jsonAsked": True}, "variant": "two"}]}},
            "rules[0].variant names 'two'",
        ),
        (
            {"default": {"variants": ONE, "rules": [{"when": {"priority": "urgent"}, "variant": "one"}]}},
            "rules[0].when.priority names 'urgent'",
        ),
        (
            {"default": {"variants": ONE, "rules": [{"when": {"jsonAsked": True}, "model": "two"}]}},
            "rules[0].model names 'two'",
        ),
    ],
)
def test_faults_name_the_key(routing: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        GatewayConfig.parse({**SETTINGS, "routing": routing}, "settings")
    assert told in refused.value.message
