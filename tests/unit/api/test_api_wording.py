"""What a caller reads about a faulty request is ours: plain words, the caller's own path, no regular expression."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gateway_site import Site

CHAT, COMPLETIONS, RETRIEVE = "/v1/chat/completions", "/v1/completions", "/v1/retrieve"
DOCUMENTS = "/v1/collections/notes/documents"
LIBRARY = re.compile(
    r"should|discriminator|pattern|\^|Value error|valid (string|integer|dict)|(?<!')required|instance of"
)
CHOICES = """'none', 'auto', 'required' or {"type": "function", "function": {"name": "…"}}"""
KINDS = "'text', 'json_object', 'json_schema'"


def schema(**more: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": more}}


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (CHAT, {"response_format": {}}, f"response_format: must have a 'type' that is one of {KINDS}."),
        (CHAT, {"response_format": {"type": "x"}}, f"response_format: must have a 'type' that is one of {KINDS}."),
        (CHAT, {"response_format": "text"}, "response_format: must be an object."),
        (CHAT, schema(name="t"), "response_format.json_schema.schema: must be given."),
        (
            CHAT,
            schema(name="a b", schema={}),
            "response_format.json_schema.name: must be 1 to 64 letters (a-z, A-Z), digits, '_' or '-'.",
        ),
        (CHAT, {"response_format": {"type": "json_schema"}}, "response_format.json_schema: must be given."),
        (
            CHAT,
            {"rag": {"collection": "A b"}},
            "rag.collection: must be 1 to 64 small letters (a-z), digits, '_' or '-', beginning with a letter or "
            "digit.",
        ),
        (CHAT, {"messages": "hi"}, "messages: must be a list."),
        (CHAT, {"messages": []}, "messages: must have at least 1 item, not 0."),
        (CHAT, {"messages": ["hi"]}, "messages[0]: must be an object."),
        (CHAT, {"temperature": "hot"}, "temperature: must be a number."),
        (CHAT, {"max_tokens": 1.5}, "max_tokens: must be a whole number."),
        (CHAT, {"seed": 10**20}, "seed: must be a whole number from -9223372036854775808 to 9223372036854775807."),
        (
            CHAT,
            {"max_tokens": -(10**30)},
            "max_tokens: must be a whole number from -9223372036854775808 to 9223372036854775807.",
        ),
        (
            CHAT,
            {"rag": {"collection": "notes", "filter": {"a": None}}},
            'rag.filter.a is null: to find missing keys use {"exists": false}.',
        ),
        (CHAT, {"rag": {"collection": "notes", "filter": {"a": {"lt": "b"}}}}, "rag.filter.a.lt must be a number."),
        (CHAT, {"stream": "yes"}, "stream: must be true or false."),
        (CHAT, {"priority": "now"}, "priority: must be one of 'interactive' or 'batch'."),
        (COMPLETIONS, {"prompt": "a", "suffix": "b"}, "suffix: is not supported: leave it out."),
        (COMPLETIONS, {"prompt": "a", "echo": True}, "echo: must be false."),
        (COMPLETIONS, {}, "prompt: must be given."),
        (CHAT, {"stop": 5}, "stop: must be text or a list of texts."),
        (CHAT, {"stop": ["a", 5]}, "stop[1]: must be text."),
        (COMPLETIONS, {"prompt": "a", "stop": {}}, "stop: must be text or a list of texts."),
        ("/v1/embeddings", {"input": None}, "input: must be text or a list of texts."),
        ("/v1/embeddings", {"input": 5}, "input: must be text or a list of texts."),
        ("/v1/embeddings", {"input": ["a", [1]]}, "input[1]: must be text."),
        (CHAT, {"tool_choice": "any"}, f"tool_choice: must be one of {CHOICES}."),
        (CHAT, {"tool_choice": 5}, f"tool_choice: must be one of {CHOICES}."),
        (DOCUMENTS, {"documents": [{}]}, "documents[0].text: must be given."),
        (
            DOCUMENTS,
            {"documents": [{"text": "a", "metadata": {"k": [1]}}]},
            "documents[0].metadata.k: must be text, a number, true or false.",
        ),
    ],
)
async def test_faults_are_told_in_plain_words(site: Site, path: str, body: dict[str, Any], sentence: str) -> None:
    reply = await (site.ask(path, **body) if path == CHAT else site.client.post(path, json=body))
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == sentence
    assert not LIBRARY.search(sentence)


@pytest.mark.parametrize("name", ["A b", "x" * 65])
async def test_a_collection_in_the_path_says_which_names_there_are(site: Site, name: str) -> None:
    message = (await site.client.get(f"/v1/collections/{name}")).json()["error"]["message"]
    assert "small letters" in message
    assert not LIBRARY.search(message)


async def test_json_that_breaks_off_says_where(site: Site) -> None:
    headers = {"Content-Type": "application/json"}
    reply = await site.client.post(CHAT, content=b'{"messages": [],\n "stream": tru}', headers=headers)
    assert "(line 2, column 12)" in reply.json()["error"]["message"]


async def test_a_line_that_breaks_off_has_one_number(site: Site) -> None:
    raw = b'{"text": "a"}\n{"text": tru}'
    reply = await site.client.post(DOCUMENTS, content=raw, headers={"Content-Type": "application/x-ndjson"})
    assert reply.json()["error"]["message"] == "Line 2 is not valid UTF-8 JSON (column 10)."


@pytest.mark.parametrize("kind", ["garbage", "text/plain/x", "+json", "Text/HTML; charset=utf-8"])
@pytest.mark.parametrize("path", [CHAT, DOCUMENTS])
async def test_a_content_type_is_told_as_it_was_sent(site: Site, path: str, kind: str) -> None:
    reply = await site.client.post(path, content=b"{}", headers={"Content-Type": kind})
    assert reply.status_code == 415
    sent = kind.partition(";")[0].lower()
    assert reply.json()["error"]["message"].startswith(f"Content-Type is {sent!r}: send application/json")


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (
            RETRIEVE,
            {"collection": "a"},
            "query: must be given. Unknown field 'collection': did you mean 'rag.collection'?",
        ),
        (RETRIEVE, {"query": "a", "topK": 2}, "Unknown field 'topK': did you mean 'rag.top_k'?"),
        (
            RETRIEVE,
            {"query": "a", "rag": {"timeout_seconds": 5}},
            "Unknown field 'rag.timeout_seconds': did you mean 'timeout_seconds'?",
        ),
        (CHAT, {"maxTokens": 5}, "Unknown field 'maxTokens': did you mean 'max_tokens'?"),
        (CHAT, {"mode": "text"}, "Unknown field 'mode': did you mean 'rag.mode' or 'model'?"),
        (CHAT, {"json_schema": {}}, "Unknown field 'json_schema': did you mean 'response_format.json_schema'?"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": "a", "nmae": "b"}]},
            "Unknown field 'messages[0].nmae': did you mean 'messages[0].name'?",
        ),
        (
            CHAT,
            schema(name="a", schema={}, stric=True),
            "Unknown field 'response_format.json_schema.stric': did you mean 'response_format.json_schema.strict'?",
        ),
        (DOCUMENTS, {"documents": [{"text": "a", "meta": {}}]}, "Unknown field 'documents[0].meta'."),
        (CHAT, {"x" * 5000: 1}, f"Unknown field '{'x' * 78}…."),
    ],
)
async def test_an_unknown_field_names_the_one_that_was_meant(
    site: Site, path: str, body: dict[str, Any], sentence: str
) -> None:
    reply = await (site.ask(path, **body) if path == CHAT else site.client.post(path, json=body))
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == sentence


async def test_a_parameter_of_the_query_is_told_likewise(site: Site) -> None:
    reply = await site.client.post(f"{DOCUMENTS}?sorce=a", content=b"a", headers={"Content-Type": "text/plain"})
    assert reply.json()["error"]["message"] == "Unknown field 'sorce': did you mean 'source'?"


@pytest.mark.parametrize(
    ("faults", "ending"),
    [(3, "Unknown field 'f2'."), (4, "Unknown field 'f2'. (1 more fault.)"), (900, "(897 more faults.)")],
)
async def test_up_to_three_faults_are_told_in_full(site: Site, faults: int, ending: str) -> None:
    reply = await site.ask(**{f"f{number}": 1 for number in range(faults)})
    error = reply.json()["error"]
    assert error["message"].startswith("Unknown field 'f0'. Unknown field 'f1'. Unknown field 'f2'.")
    assert (error["message"].endswith(ending), error["param"]) == (True, "f0")
