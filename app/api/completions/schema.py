"""The request of ``/v1/completions``: a bare prompt, both guardrails, no template and no retrieval."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from app.api.fields import ExtensionFields, IgnoredFields, SamplingFields, StreamOptions


def _one_prompt(prompt: Any) -> Any:
    if not isinstance(prompt, list):
        return prompt
    if len(prompt) != 1 or not isinstance(prompt[0], str):
        raise ValueError("send one prompt as a string; several prompts and token lists are not supported")
    return prompt[0]


OnePrompt = Annotated[
    str,
    Field(min_length=1),
    BeforeValidator(_one_prompt),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 1}]}),
]


class CompletionRequest(SamplingFields, ExtensionFields, IgnoredFields):
    """A prompt to go on from."""

    prompt: OnePrompt
    """The text."""
    model: str | None = None
    """A model or a profile; absent for the default profile."""
    stream: bool | None = None
    """Send the answer piece by piece as server-sent events."""
    stream_options: StreamOptions | None = None
    """Only with ``stream``."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest answer in tokens."""
    n: Annotated[int, Field(ge=1)] | None = None
    """Answers to return."""
    logprobs: Annotated[int, Field(ge=0)] | None = None
    """Likeliest tokens to return per position."""
    echo: Literal[False] | None = None
    """Not supported; only false."""
    suffix: None = None
    """Not supported; only null."""
    best_of: None = None
    """Not supported; only null. Use ``n_candidates``."""

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed together with stream")
        return self
