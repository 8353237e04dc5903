"""OpenAI's ``response_format`` in OpenAI's own spelling: a profile's default, or what a request brings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.faults import OPENAI_PATTERN

_OPENAI_SHAPE = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

OpenAIName = Annotated[str, Field(pattern=OPENAI_PATTERN)]


class TextFormat(BaseModel):
    """Free text."""

    model_config = _OPENAI_SHAPE

    type: Literal["text"]


class JsonObjectFormat(BaseModel):
    """Any JSON object."""

    model_config = _OPENAI_SHAPE

    type: Literal["json_object"]


class JsonSchema(BaseModel):
    """A named JSON schema."""

    model_config = ConfigDict(**_OPENAI_SHAPE)

    name: OpenAIName = "answer"
    """The schema's name."""
    description: Annotated[str, Field(max_length=1024)] | None = None
    """What the answer is for."""
    json_schema: dict[str, Any] = Field(alias="schema")
    """The JSON schema itself."""
    strict: bool | None = None
    """True or absent: the engine's grammar enforces the schema. False: the answer is only checked afterwards."""


class JsonSchemaFormat(BaseModel):
    """JSON that follows a schema."""

    model_config = _OPENAI_SHAPE

    type: Literal["json_schema"]
    json_schema: JsonSchema
    """The schema and its name."""


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


def openai_json(response_format: ResponseFormat | None) -> dict[str, Any] | None:
    """Return the format as OpenAI's JSON, or None for free text."""
    if response_format is None or isinstance(response_format, TextFormat):
        return None
    return response_format.model_dump(exclude_none=True, by_alias=True)
