"""The core LLM as a backend: each task's prompt and schema, on the real small model."""

import re

import httpx
import pytest

from app.apps.backends.build import build_entities, build_sentiment, build_summary
from app.apps.messages import SummaryRequest
from app.config.applications import EntitiesShape, SentimentShape, SummaryShape
from app.stages.generator import Generator

TEXT = "Ada Lovelace lived in London and was happy there."


class OverHttp:
    """A running Baton's model as an engine: its chunks are those of the engine."""

    def __init__(self, baton):
        self._url = f"{baton.base}/v1/chat/completions"

    async def generate(self, kind, body, trace=None):
        sent = {key: value for key, value in body.items() if key not in ("request_id", "priority", "n")}
        async with (
            httpx.AsyncClient(timeout=120) as client,
            client.stream("POST", self._url, json={**sent, "rag": {"enabled": False}}) as reply,
        ):
            async for line in reply.aiter_lines():
                if line.startswith("data: ") and '"choices":[]' not in line:
                    yield line


@pytest.mark.parametrize(
    ("build", "shape", "request_"),
    [
        (build_sentiment, SentimentShape, TEXT),
        (build_summary, SummaryShape, SummaryRequest(TEXT * 3, 5, 40)),
        (build_entities, EntitiesShape, TEXT),
    ],
)
async def test_the_core_llm_writes_along_each_task_s_schema(baton, build, shape, request_):
    backend = build(
        shape(backend={"kind": "model", "source": "smollm2"}),
        lambda application, model: Generator({model: OverHttp(baton)}),
    )
    (answer,) = await backend.answer([request_])
    if shape is SentimentShape:
        assert re.fullmatch(r"[1-5] stars?", answer.label)
    elif shape is SummaryShape:
        assert 10 <= len(answer) <= 160
    else:
        assert all(each.text in TEXT for each in answer)
