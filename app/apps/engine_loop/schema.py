"""The request of the engine loop's route."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from app.api.chat.schema import ChatMessage
from app.api.fields import SamplingFields, StrictModel
from app.blank import is_blank


def _not_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError("send a text that shows something")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]


class PassageBody(StrictModel):
    """A passage that the caller found for the question."""

    text: Text
    """Its text."""
    source: str = ""
    """What it is cited as."""


class LoopBody(SamplingFields):
    """A question, or a conversation."""

    prompt: Text | None = None
    """The question; either this or ``messages``."""
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)] | None = None
    """The conversation; either this or ``prompt``."""
    passages: Annotated[list[PassageBody], Field(fail_fast=True)] = Field(default_factory=list)
    """What to answer from, best first."""
    input: Literal["text", "embeddings"] = "text"
    """How the prompt reaches the engine: as tokens, or as a tensor in the model's embedding space."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest answer in tokens."""
    stream: bool = False
    """Send the answer piece by piece as server-sent events."""
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Deadline of the request."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("send either prompt or messages")
        return self

    def turns(self) -> list[ChatMessage]:
        """Return the conversation; a prompt is one turn of a user."""
        return self.messages or [ChatMessage(role="user", content=self.prompt)]
