"""OpenAI's ``response_format`` in OpenAI's own spelling: a profile's default, or what a request brings."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

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


class _NamedSchema(BaseModel):
    model_config = ConfigDict(**_OPENAI_SHAPE)

    name: OpenAIName = "answer"
    """The schema's name."""
    description: Annotated[str, Field(max_length=1024)] | None = None
    """What the answer is for."""
    strict: bool | None = None
    """True or absent: the engine's grammar enforces the schema. False: the answer is only checked afterwards."""


class JsonSchema(_NamedSchema):
    """A named JSON schema."""

    json_schema: dict[str, Any] = Field(alias="schema")
    """The JSON schema itself."""


class WrittenSchema(_NamedSchema):
    """A named JSON schema of a configuration."""

    json_schema: str | dict[str, Any] = Field(alias="schema")
    """The JSON schema itself, or its JSON as text. The engine writes an answer's properties in the order that they have
    here, and Helm sorts the keys of a mapping: text keeps their order."""
    _tree: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("json_schema", mode="before")
    @classmethod
    def _is_an_object(cls, value: Any) -> Any:
        if not isinstance(value, dict) and not (isinstance(value, str) and isinstance(_parsed(value), dict)):
            raise ValueError("must be an object, or an object as JSON text")
        return value

    @model_validator(mode="after")
    def _read(self) -> Self:
        self._tree = _parsed(self.json_schema) if isinstance(self.json_schema, str) else self.json_schema
        return self

    @property
    def tree(self) -> dict[str, Any]:
        """The schema, however it was written."""
        return self._tree


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is text that is no JSON ({error}): give an object as JSON text") from None


class JsonSchemaFormat(BaseModel):
    """JSON that follows a schema."""

    model_config = _OPENAI_SHAPE

    type: Literal["json_schema"]
    json_schema: JsonSchema
    """The schema and its name."""


class WrittenSchemaFormat(BaseModel):
    """JSON that follows a schema of the configuration."""

    model_config = _OPENAI_SHAPE

    type: Literal["json_schema"]
    json_schema: WrittenSchema
    """The schema and its name."""


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
#: As a configuration has it.
WrittenFormat = Annotated[TextFormat | JsonObjectFormat | WrittenSchemaFormat, Field(discriminator="type")]


def openai_json(response_format: ResponseFormat | WrittenFormat | None) -> dict[str, Any] | None:
    """Return the format as OpenAI's JSON, or None for free text."""
    if response_format is None or isinstance(response_format, TextFormat):
        return None
    found = response_format.model_dump(exclude_none=True, by_alias=True)
    if isinstance(response_format, WrittenSchemaFormat):
        found["json_schema"]["schema"] = response_format.json_schema.tree
    return found


def write_out(response_format: dict[str, Any] | None) -> None:
    """Put text in the place of the mapping in a :data:`WrittenFormat` given as plain data."""
    named = (response_format or {}).get("json_schema")
    if named and isinstance(named["schema"], dict):
        named["schema"] = json.dumps(named["schema"], ensure_ascii=False)
