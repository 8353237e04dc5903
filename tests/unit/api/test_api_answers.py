"""What jobs the pipeline gets, and how its answers look."""

from __future__ import annotations

import time
from typing import Any

import pytest
from gateway_site import PERSON, Site

from app.errors import BatonError, ContextLengthExceeded, GuardrailBlocked
from app.messages import Message, RetrievalQuery

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


async def test_a_plain_request_becomes_a_job_of_the_default_profile(site: Site) -> None:
    before = time.monotonic()
    reply = await site.client.post(
        "/v1/chat/completions",
        json={"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": "hi", "name": "Ann"}]},
        headers={"x-request-id": "abc"},
    )
    job = site.job
    assert reply.status_code == 200
    assert (job.request_id, job.model, job.profile, job.policy) == ("abc", "smol", "default", "default")
    assert job.messages == (Message("system", "d"), Message("user", "hi", name="Ann"))
    assert (job.system_prompt, job.max_tokens, job.sampling) == ("Be brief.", 64, {"temperature": 0.5})
    assert before + 119 < job.deadline < time.monotonic() + 121
    assert (job.retrieval, job.response_format, job.tools, job.priority) == (None, None, (), "interactive")


async def test_fields_of_the_request_win_over_the_profile(site: Site) -> None:
    await site.ask(temperature=0, max_tokens=5, stop="x", top_p=0.5, seed=-1, timeout_seconds=3, priority="batch")
    assert site.job.sampling == {"temperature": 0, "stop": ["x"], "top_p": 0.5, "seed": -1}
    assert (site.job.max_tokens, site.job.priority) == (5, "batch")
    assert site.job.deadline < time.monotonic() + 3


async def test_parts_are_joined_without_anything_between(site: Site) -> None:
    await site.ask(messages=[{"role": "user", "content": [{"type": "text", "text": t} for t in ("bo", "mb")]}])
    assert site.job.messages[0].content == "bomb"


async def test_the_reply_has_openais_shape_and_the_field_baton(site: Site) -> None:
    reply = (await site.ask(rag={"collection": "probe", "return_contexts": True})).json()
    assert reply["object"] == "chat.completion"
    assert reply["id"].startswith("chatcmpl-")
    assert reply["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Baton answers from its documents.", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert reply["usage"] == {"prompt_tokens": 1, "completion_tokens": 6, "total_tokens": 7}
    baton = reply["baton"]
    assert baton.keys() == {
        *("citations", "confidence", "grounding", "unsupported_numbers", "json"),
        *("guardrail", "variant", "stages", "flags", "contexts"),
    }
    assert baton["citations"][0] | {"mark": 1, "start": 0, "end": 33} == baton["citations"][0]
    assert baton["variant"] == {"profile": "default", "model": "smol"}
    assert baton["contexts"][0]["mark"] == 1


async def test_contexts_come_only_when_asked_for_and_their_lack_is_flagged(site: Site) -> None:
    baton = (await site.ask(rag={"collection": "empty"})).json()["baton"]
    assert "contexts" not in baton
    assert baton["flags"] == {"without_context": True}


async def test_each_choice_has_its_own_report(site: Site) -> None:
    reply = (await site.ask(n=3)).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert [choice["index"] for choice in reply["baton"]["choices"]] == [0, 1, 2]
    assert reply["usage"]["completion_tokens"] == 18


async def test_logprobs_are_passed_on(site: Site) -> None:
    reply = (await site.ask(logprobs=True, top_logprobs=1, max_tokens=2)).json()
    content = reply["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in content] == ["Baton", " answers"]
    assert content[0]["top_logprobs"][0]["logprob"] == -0.5


async def test_tool_calls_are_put_together(site: Site) -> None:
    reply = (await site.ask(model="tooled", tools=[TOOL], tool_choice="required")).json()
    message = reply["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "call-0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]
    assert reply["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [TOOL, TOOL]},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"tools": [TOOL], "tool_choice": "sometimes"},
        {"tools": [TOOL | {"type": "browser"}]},
        {"tools": [{"type": "function", "function": {"name": "no blanks"}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "nope"}}}]},
        {"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(33)]},
    ],
)
async def test_faulty_tools_are_refused(site: Site, fields: Any) -> None:
    reply = await site.ask(model="tooled", **fields)
    assert reply.status_code == 400
    assert "tool" in f"{reply.json()['error']['param']} {reply.json()['error']['message']}"


async def test_a_profiles_response_format_holds_until_the_request_brings_its_own(site: Site) -> None:
    await site.ask(profile="shopping")
    assert site.job.response_format == {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    await site.ask(profile="shopping", response_format={"type": "json_object"})
    assert site.job.response_format == {"type": "json_object"}
    await site.ask(profile="shopping", response_format={"type": "text"})
    assert site.job.response_format is None


async def test_candidates_multiply_within_the_limit(site: Site) -> None:
    profiles = site.config.profiles
    best = profiles["default"].model_copy(update={"n_candidates": 3})
    site.config = site.config.model_copy(update={"profiles": {**profiles, "default": best}})
    await site.ask(n=2)
    assert (site.job.n, site.job.n_candidates) == (2, 6)
    await site.ask(n=4)
    assert site.job.n_candidates == 8
    await site.ask(n=2, n_candidates=2)
    assert site.job.n_candidates == 2


async def test_the_query_is_the_profiles_with_the_requests_changes(site: Site) -> None:
    await site.ask(profile="docs")
    assert site.job.retrieval == RetrievalQuery("hi", ("probe",), top_k=3, candidates=64)
    await site.ask(profile="docs", rag={"enabled": False})
    assert site.job.retrieval is None
    changes = {"top_k": 64, "filter": {"a": 1}, "min_score": 0.5, "mode": "vector", "late_interaction": True}
    await site.ask(profile="docs", rag={"collections": ["probe", "empty"], **changes})
    assert site.job.retrieval == RetrievalQuery("hi", ("probe", "empty"), candidates=64, **changes)


async def test_the_question_is_the_last_user_turn(site: Site) -> None:
    turns = [{"role": role, "content": role * 2} for role in ("user", "assistant")]
    await site.ask(profile="docs", messages=[*turns, {"role": "user", "content": "last"}, turns[1]])
    assert site.job.retrieval is not None
    assert site.job.retrieval.text == "last"


async def test_completions_take_a_bare_prompt_and_no_retrieval(site: Site) -> None:
    reply = await site.client.post("/docs/v1/completions", json={"prompt": ["hi"], "logprobs": 1, "max_tokens": 2})
    assert (site.job.prompt, site.job.messages, site.job.retrieval) == ("hi", (), None)
    body = reply.json()
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", "Baton answers")
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["Baton", " answers"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"Baton": -0.5}, {" answers": -0.5}],
        "text_offset": [0, 5],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"prompt": ""},
        {"prompt": "a", "echo": True},
        {"prompt": "a", "rag": {"collection": "probe"}},
        {"prompt": "a", "best_of": 2},
        {"prompt": "a", "logprobs": 21},
        {"prompt": "a", "stream_options": {}},
        {},
    ],
)
async def test_completions_refuse_what_they_cannot_do(site: Site, fields: Any) -> None:
    assert (await site.client.post("/v1/completions", json=fields)).status_code == 400


@pytest.mark.parametrize("prompt", ["", "  \n", "\u200b \u200d", "\x00\x1b"])
async def test_generate_speaks_of_its_prompt(site: Site, prompt: str) -> None:
    error = (await site.client.post("/generate", json={"prompt": prompt})).json()["error"]
    assert (error["param"], error["message"]) == ("prompt", "prompt: send a question, not a blank text.")
    assert not site.pipeline.jobs


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GuardrailBlocked("The request was blocked.", "guardrail", "messages"), "The request was blocked."),
        (
            ContextLengthExceeded(
                "Question: 9 tokens. Shorten the messages or lower max_tokens.", "assembler", "messages"
            ),
            "Question: 9 tokens. Shorten the prompt or lower max_tokens.",
        ),
        (
            ContextLengthExceeded(
                "Window: 8 tokens; the messages take 9. Shorten the messages.", "generator", "messages"
            ),
            "Window: 8 tokens; the prompt takes 9. Shorten the prompt.",
        ),
    ],
)
async def test_generate_speaks_of_its_prompt_where_stages_speak_of_messages(
    site: Site, error: BatonError, message: str, stream: bool
) -> None:
    site.pipeline.rescript(fail_before=error)
    reply = await site.client.post("/generate", json={"prompt": "hi", "stream": stream})
    told = reply.json()["error"]
    assert (reply.status_code, told["code"], told["stage"]) == (400, error.code, error.stage)
    assert (told["param"], told["message"]) == ("prompt", message)
    asked = (await site.ask(stream=stream)).json()["error"]
    assert (asked["param"], asked["message"]) == ("messages", error.message)


async def test_generate_answers_under_the_default_profile(site: Site) -> None:
    reply = (await site.client.post("/generate", json={"prompt": "hi", "max_tokens": 2, "temperature": 1})).json()
    assert {key: reply[key] for key in ("status", "text", "tokens", "confidence")} == {
        "status": "truncated",
        "text": "Baton answers",
        "tokens": 2,
        "confidence": None,
    }
    assert reply["baton"]["variant"]["profile"] == "default"
    assert site.job.sampling == {"temperature": 1}
    assert (await site.client.post("/generate", json={"prompt": "hi", "model": "smol"})).status_code == 400
