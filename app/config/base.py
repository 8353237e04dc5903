"""The base of every configuration model."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from app.errors import ConfigError, bounded
from app.faults import path_of, sentence_of


class Config(BaseModel):
    """Frozen, closed against unknown keys, readable in camelCase (values.yaml) and in snake_case (Python)."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_loose_values(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what Pydantic would silently turn into another type: true for 1, "yes" for true."""
        refuse_loose(cls.model_fields[str(info.field_name)].annotation, value)
        return value

    @classmethod
    def parse(cls, raw: Any, where: str) -> Self:
        """Validate ``raw``; raise :class:`ConfigError` with one sentence per fault, each naming the key to change."""
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise ConfigError(describe(error, where)) from None


def describe(error: ValidationError, where: str) -> str:
    """Return the faults of a pydantic error as sentences: the key, what is wrong, the value (shortened)."""
    lines = []
    for fault in error.errors(include_url=False)[:5]:
        key = path_of((where, *fault["loc"]))
        echo = "" if fault["type"] in {"missing", "extra_forbidden"} else f" (got {bounded(fault['input'])})"
        text = "there is no such key" if fault["type"] == "extra_forbidden" else sentence_of(fault)
        lines.append(f"{key}: {text}{echo}")
    return "; ".join(lines)


def refuse_loose(kind: Any, value: Any) -> None:
    """Raise ValueError where ``value`` is true or false and ``kind`` a number, or the other way round.

    Looks into unions, lists and mappings; models look after themselves.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        refuse_loose(parts[0], value)
    elif origin in (Union, UnionType):
        wanted = [part for part in parts if part is not type(None)]
        if value is not None and len(wanted) == 1:
            refuse_loose(wanted[0], value)
    elif origin is dict and isinstance(value, Mapping):
        for part in value.values():
            refuse_loose(parts[1], part)
    elif origin in (list, tuple) and isinstance(value, list | tuple):
        for part in value:
            refuse_loose(parts[0], part)
    elif kind is bool and not isinstance(value, bool):
        raise ValueError("must be true or false, without quotes")
    elif kind in (int, float) and isinstance(value, bool):
        raise ValueError(f"must be a {'whole ' if kind is int else ''}number, not {str(value).lower()}")
