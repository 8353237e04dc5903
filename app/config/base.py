"""The base of every configuration model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from app.errors import ConfigError, bounded
from app.faults import path_of, sentence_of

#: Values that are worth an echo; a mapping or list is named by its key well enough.
_SCALARS = (str, int, float, bool, type(None))


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
        """Validate ``raw``; raise :class:`ConfigError` with one sentence per fault, each naming the key to change.

        ``where`` is the key that holds ``raw``, or ends with a colon: the file or line that does.
        """
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise ConfigError(describe(error, where)) from None


def describe(error: ValidationError, where: str, echo: bool = True) -> str:
    """Return the faults of a pydantic error as sentences: the key, what is wrong, the value (one, and shortened).

    ``echo`` false leaves the values out, where one may be a secret.
    """
    lines = []
    for fault in _causes(error.errors(include_url=False))[:5]:
        key = _key(where, fault["loc"])
        shown = echo and fault["type"] not in {"missing", "extra_forbidden"} and isinstance(fault["input"], _SCALARS)
        told = f" (got {bounded(fault['input'])})" if shown else ""
        lines.append(f"{key}: {sentence_of(fault)}{told}")
    return "; ".join(lines)


def _causes(faults: Sequence[Any]) -> list[Any]:
    """Drop what only follows from another fault: a list is not too short because its items were refused."""
    places = [fault["loc"] for fault in faults]

    def follows(fault: Any) -> bool:
        own = fault["loc"]
        return fault["type"] == "too_short" and any(len(own) < len(loc) and loc[: len(own)] == own for loc in places)

    return [fault for fault in faults if not follows(fault)]


def _key(where: str, location: Sequence[str | int]) -> str:
    if not where.endswith(":"):
        return path_of((where, *location))
    return f"{where} {path_of(location)}" if location else where.removesuffix(":")


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
