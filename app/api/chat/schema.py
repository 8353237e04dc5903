"""The request of ``/v1/chat/completions``: OpenAI's, closed against unknown fields, with Baton's extensions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, PrivateAttr, WithJsonSchema, model_validator

from app.api.fields import (
    ExtensionFields,
    IgnoredFields,
    RagFields,
    SamplingFields,
    StreamOptions,
    StrictModel,
    TextContent,
    split_parts,
)
from app.config.response_format import OpenAIName, ResponseFormat


class CalledFunction(StrictModel):
    """The function of a past tool call."""

    name: OpenAIName
    """The function's name."""
    arguments: str
    """JSON text, as the model wrote it."""


class PastToolCall(StrictModel):
    """One tool call of an assistant turn."""

    id: Annotated[str, Field(min_length=1, max_length=128)]
    """The id that the tool's answer refers to."""
    type: Literal["function"] = "function"
    """Always ``function``."""
    function: CalledFunction
    """Name and arguments."""
    index: Any = None
    """Ignored."""


class ChatMessage(StrictModel):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    """Who speaks; ``developer`` is read as ``system``."""
    content: TextContent | None = None
    """Text, or a list of parts; empty only for an assistant turn with tool calls. A user turn may hold images."""
    name: OpenAIName | None = None
    """The speaker's name."""
    tool_calls: Annotated[list[PastToolCall], Field(fail_fast=True)] | None = None
    """Tool calls of an assistant turn."""
    tool_call_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The call that a tool turn answers."""
    refusal: Any = None
    """Ignored; clients send it back with assistant turns."""
    annotations: Any = None
    """Ignored; clients send it back with assistant turns."""
    audio: None = None
    """Not supported; only null."""
    function_call: None = None
    """Not supported; only null. Use ``tool_calls``."""
    _images: tuple[str, ...] = PrivateAttr(default=())

    @property
    def images(self) -> tuple[str, ...]:
        """The addresses of the turn's images, as they came."""
        return self._images

    @model_validator(mode="wrap")
    @classmethod
    def _without_images(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(raw, dict) or not isinstance(raw.get("content"), list):
            return handler(raw)
        content, images = split_parts(raw["content"])
        message = handler({**raw, "content": content})
        message._images = images
        return message

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError(f"content is missing: a {self.role} turn needs text or text parts")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a {self.role} turn cannot hold tool_calls")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise ValueError("tool_call_id belongs to tool turns, and each tool turn needs one")
        return self


class ToolFunction(StrictModel):
    """A function that the model may call."""

    name: OpenAIName
    """The function's name."""
    description: Annotated[str, Field(max_length=8192)] | None = None
    """What the function does."""
    parameters: dict[str, Any] | None = None
    """JSON schema of the arguments."""
    strict: bool | None = None
    """Whether the arguments must follow the schema."""


class Tool(StrictModel):
    """A tool that the model may call."""

    type: Literal["function"]
    """Always ``function``."""
    function: ToolFunction
    """The function."""


_ONE_TOOL = '{"type": "function", "function": {"name": "…"}}'


def _named_tool(choice: Any) -> Any:
    if choice is None or choice in ("none", "auto", "required"):
        return choice
    function = choice.get("function") if isinstance(choice, dict) else None
    named = isinstance(function, dict) and function.keys() == {"name"} and isinstance(function["name"], str)
    if not named or choice != {"type": "function", "function": function}:
        raise ValueError(f"must be one of 'none', 'auto', 'required' or {_ONE_TOOL}")
    return choice


ToolChoice = Annotated[
    Any,
    BeforeValidator(_named_tool),
    WithJsonSchema({"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]}),
]


class ChatRequest(SamplingFields, ExtensionFields, IgnoredFields):
    """A conversation to answer."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    """The turns, oldest first."""
    model: str | None = None
    """A model or a profile; absent for the default profile."""
    stream: bool | None = None
    """Send the answer piece by piece as server-sent events."""
    stream_options: StreamOptions | None = None
    """Only with ``stream``."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest answer in tokens."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """OpenAI's newer name for ``max_tokens``."""
    n: Annotated[int, Field(ge=1)] | None = None
    """Answers to return."""
    logprobs: bool | None = None
    """Return the logarithm of each token's probability."""
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    """Likeliest tokens to return per position; only with ``logprobs``."""
    response_format: ResponseFormat | None = None
    """Free text, any JSON object, or JSON that follows a schema."""
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    """Functions that the model may call."""
    tool_choice: ToolChoice = None
    """Whether, or which, function is called; only with ``tools``."""
    rag: RagFields | None = None
    """Retrieval, over the profile's defaults."""

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed together with stream")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs is only allowed together with logprobs")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ: send one of them")
        self._check_tool_choice()
        return self

    def _check_tool_choice(self) -> None:
        names = {tool.function.name for tool in self.tools or ()}
        if len(names) < len(self.tools or ()):
            raise ValueError("two tools have the same name")
        if self.tool_choice in ("auto", "required") and not names:
            raise ValueError("tool_choice is only allowed together with tools")
        if isinstance(self.tool_choice, dict) and self.tool_choice["function"]["name"] not in names:
            raise ValueError("tool_choice names a function that tools does not hold")
