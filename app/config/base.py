"""The base of every configuration model."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from app.errors import ConfigError, bounded


class Config(BaseModel):
    """Frozen, closed against unknown keys, readable in camelCase (values.yaml) and in snake_case (Python)."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

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
        key = ".".join(str(part) for part in (where, *fault["loc"]))
        echo = "" if fault["type"] in {"missing", "extra_forbidden"} else f" (got {bounded(fault['input'])})"
        lines.append(f"{key}: {fault['msg']}{echo}")
    return "; ".join(lines)
