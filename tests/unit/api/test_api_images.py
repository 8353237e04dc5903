"""Images in chat requests."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from gateway_site import Site
from PIL import Image

from app.config.gateway import ModelInfo


def _uri() -> str:
    held = io.BytesIO()
    Image.new("RGB", (4, 4)).save(held, "PNG")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()


URI = _uri()
IMAGE = {"type": "image_url", "image_url": {"url": URI}}
TEXT = {"type": "text", "text": "What is "}


def turns(*parts: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": list(parts)}, {"role": "user", "content": "go on"}]


@pytest.fixture
def seeing(site: Site) -> Site:
    site.config = site.config.model_copy(update={"models": {**site.config.models, "smol": ModelInfo(images=True)}})
    return site


async def test_images_reach_the_job_beside_the_text(seeing: Site) -> None:
    reply = await seeing.ask(messages=turns(TEXT, IMAGE, {"type": "text", "text": "this?"}))
    assert reply.status_code == 200
    message = seeing.job.messages[0]
    assert (message.content, message.images) == ("What is this?", (URI,))
    assert URI not in repr(message)


async def test_a_turn_may_be_an_image_alone(seeing: Site) -> None:
    assert (await seeing.ask(messages=turns(IMAGE))).status_code == 200
    assert seeing.job.messages[0].content == ""


async def test_the_question_s_images_are_searched_for(seeing: Site) -> None:
    messages = [{"role": "user", "content": [TEXT, IMAGE]}]
    await seeing.ask(messages=messages, rag={"collection": "probe"})
    assert seeing.job.retrieval is not None
    assert seeing.job.retrieval.images == (URI,)


async def test_a_model_that_reads_none_refuses_them(site: Site) -> None:
    error = (await site.ask(messages=turns(TEXT, IMAGE))).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request", "messages")
    assert "reads no images" in error["message"]
    models = (await site.client.get("/v1/models/smol")).json()
    assert models["images"] is False


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (turns(TEXT, {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}), "data URI"),
        (turns(TEXT, {"type": "image_url", "image_url": URI}), "an image part is"),
        (turns(TEXT, {"type": "image_url", "image_url": {"url": URI, "size": 1}}), "an image part is"),
        (turns(TEXT, {"type": "image_url"}), "an image part is"),
        (turns(IMAGE, role="system"), "turns of the user"),
        (turns(TEXT, {"type": "input_audio"}), "not supported"),
        (turns(*[IMAGE] * 5), "5 images, over the limit of 4"),
    ],
)
async def test_faults_are_told_without_the_image(seeing: Site, messages: Any, words: str) -> None:
    reply = await seeing.ask(messages=messages)
    assert reply.status_code == 400
    assert words in reply.json()["error"]["message"]
    assert URI[40:] not in reply.text


async def test_text_parts_are_judged_as_before(seeing: Site) -> None:
    seeing.pipeline.rescript(blocked_terms=("What is",))
    assert (await seeing.ask(messages=turns(TEXT, IMAGE))).json()["error"]["code"] == "content_filter"
