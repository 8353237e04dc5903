"""The core LLM as a backend: each task is a prompt and a JSON schema that the engine writes along."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import orjson

from app.apps.backends.contract import Backend
from app.apps.messages import Entity, Sentiment, SummaryRequest
from app.config.backends import STARS
from app.errors import ClientError, ContextLengthExceeded, EngineFailed
from app.messages import Delta, GenerateRequest
from app.traces import current_carrier

In = TypeVar("In")
Out = TypeVar("Out")

_ENTITIES = 20
#: JSON around an answer, and room for an estimate that was too low.
_SLACK_TOKENS = 64
_CHARS_PER_TOKEN = 4


class Engine(Protocol):
    """What generates (``app/stages/generator.py``)."""

    def run(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Yield the answer in pieces."""
        ...


@dataclass(frozen=True, slots=True)
class Task(Generic[In, Out]):
    """How one kind of request becomes a question with a schema, and the answer's JSON a result."""

    question: Callable[[In], str]
    schema: Callable[[In], Mapping[str, Any]]
    max_tokens: Callable[[In], int]
    read: Callable[[In, Mapping[str, Any]], Out]


class CoreModel(Backend[In, Out]):
    """Asks one of Baton's models, all requests at once: the engine batches. Cancelling a call aborts its answer."""

    batched = False

    def __init__(self, engine: Engine, model: str, task: Task[In, Out], stage: str) -> None:
        self._engine = engine
        self._model = model
        self._task = task
        self._stage = stage

    async def start(self) -> None:
        """Do nothing: the engine is an application of its own, and may start later."""

    async def answer(self, requests: Sequence[In]) -> list[Out]:
        """Ask the model.

        Raises :class:`ContextLengthExceeded` for a text over its window, and :class:`EngineFailed` where it refuses our
        question or its answer is not what the schema says.
        """
        return list(await asyncio.gather(*map(self._ask, requests)))

    async def _ask(self, request: In) -> Out:
        task = self._task
        asked = GenerateRequest(
            model=self._model,
            request_id=uuid.uuid4().hex,
            messages=({"role": "user", "content": task.question(request)},),
            max_tokens=task.max_tokens(request),
            sampling={"temperature": 0},
            response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": task.schema(request)}},
            trace=current_carrier(),
        )
        try:
            async with aclosing(self._engine.run(asked)) as deltas:
                text = "".join([delta.content async for delta in deltas])
        except ContextLengthExceeded:
            told = "The text is longer than the model of this step can read: send a shorter one."
            raise ContextLengthExceeded(told, self._stage, "text") from None
        except ClientError as error:
            raise EngineFailed(f"The model refuses the question of this step: {error.message}", self._stage) from None
        try:
            return task.read(request, orjson.loads(text))
        except (ValueError, KeyError, TypeError):
            raise EngineFailed("The model broke off before its answer was complete: try again.", self._stage) from None


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _share(score: Any) -> float:
    """Return a score as 0 to 1: not every grammar holds numbers to the schema's bounds."""
    return min(1.0, max(0.0, float(score)))


def sentiment_task(negative_labels: Sequence[str]) -> Task[str, Sentiment]:
    """Return the task of rating a text with 1 to 5 stars."""
    negative = {label.lower() for label in negative_labels}
    schema = _object(label={"enum": list(STARS)}, score={"type": "number", "minimum": 0, "maximum": 1})

    def read(text: str, answer: Mapping[str, Any]) -> Sentiment:
        label, score = str(answer["label"]), _share(answer["score"])
        return Sentiment(label, score, score if label.lower() in negative else 0.0)

    return Task(
        question=lambda text: (
            "How well does this text speak of its subject, from 1 star (very badly) to 5 stars (very well)? Answer in "
            f"JSON with the label and, as score from 0 to 1, how sure you are.\n\n{text}"
        ),
        schema=lambda text: schema,
        max_tokens=lambda text: _SLACK_TOKENS,
        read=read,
    )


def summary_task() -> Task[SummaryRequest, str]:
    """Return the task of summarising a text within bounds, which become bounds in characters."""

    def schema(request: SummaryRequest) -> Mapping[str, Any]:
        return _object(
            summary={
                "type": "string",
                "minLength": request.min_tokens * 2,
                "maxLength": request.max_tokens * _CHARS_PER_TOKEN,
            }
        )

    return Task(
        question=lambda request: f"Summarise this text in two or three sentences, as JSON.\n\n{request.text}",
        schema=schema,
        # The grammar ends the text at maxLength; tokens of one character would need as many as that.
        max_tokens=lambda request: request.max_tokens * _CHARS_PER_TOKEN + _SLACK_TOKENS,
        read=lambda request, answer: str(answer["summary"]).strip(),
    )


def entities_task() -> Task[str, tuple[Entity, ...]]:
    """Return the task of naming what a text names; a name that the text does not hold is dropped."""
    entity = _object(
        text={"type": "string", "minLength": 1, "maxLength": 80},
        label={"enum": ["PERSON", "ORGANISATION", "PLACE", "OTHER"]},
        score={"type": "number", "minimum": 0, "maximum": 1},
    )
    schema = _object(entities={"type": "array", "items": entity, "maxItems": _ENTITIES})

    def read(text: str, answer: Mapping[str, Any]) -> tuple[Entity, ...]:
        found = (Entity(str(each["text"]), str(each["label"]), _share(each["score"])) for each in answer["entities"])
        return tuple(each for each in found if each.text in text)

    return Task(
        question=lambda text: (
            "List the people, organisations and places that this text names, as JSON, each with a score from 0 to 1 "
            f"that says how sure you are.\n\n{text}"
        ),
        schema=lambda text: schema,
        max_tokens=lambda text: _ENTITIES * 48 + _SLACK_TOKENS,
        read=read,
    )
