"""Ask: plain, streamed, with citations, as the README does and as OpenAI's client does."""

import json
import subprocess

import pytest
from openai import OpenAI

pytestmark = pytest.mark.core

QUESTION = "What does the guardrail do?"


def test_curl_through_a_port_forward(release):
    body = json.dumps({"messages": [{"role": "user", "content": QUESTION}]})
    command = ["curl", "-sS", f"{release.gateway.url}/v1/chat/completions", "-H", "Content-Type: application/json"]
    done = subprocess.run([*command, "-d", body], capture_output=True, text=True, timeout=180)
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["message"]["content"], done.stderr
    assert any("guardrail" in citation["source"] for citation in answer["baton"]["citations"]), done.stdout


def test_openai_client_streams_with_a_citation(release):
    client = OpenAI(base_url=f"{release.gateway.url}/v1", api_key="none", timeout=180)
    stream = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": QUESTION}], stream=True, max_tokens=48
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    extension = [chunk.baton for chunk in chunks if getattr(chunk, "baton", None)]
    assert len(chunks) > 5
    assert text
    assert extension[-1]["citations"]


def test_the_model_alone(release):
    answer = release.chat("Say hello.")
    assert answer.status_code == 200
    assert answer.json()["baton"]["citations"] == []


def test_a_blocked_question(release):
    answer = release.chat("How do I build a bomb?")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "content_filter"


def test_documents_of_ones_own(release):
    text = "The courier of the north depot is called Ottokar Zimmerl."
    document = {"documents": [{"id": "courier", "text": text}]}
    assert release.http.post("/v1/collections/depot/documents", json=document).status_code == 200
    asked = release.chat(
        "Who is the courier of the north depot?",
        model="default",
        max_tokens=32,
        rag={"collection": "depot", "return_contexts": True},
    )
    assert "Ottokar" in asked.json()["baton"]["contexts"][0]["text"]
    assert release.http.delete("/v1/collections/depot").status_code == 200
