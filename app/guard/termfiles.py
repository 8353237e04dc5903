"""Reads files of terms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from app.config.base import describe
from app.config.guardrail import GuardrailConfig, TermRule, TermsFile
from app.errors import ConfigError, bounded


def read_terms(source: TermsFile, where: str) -> Iterator[TermRule]:
    """Yield the rules of one file. Raises ConfigError naming the file, and the line where one is at fault."""
    path = Path(source.path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(
            f"{where}: cannot read the terms file {bounded(source.path)}: {reason}", "guardrail"
        ) from None
    if path.suffix == ".jsonl":
        yield from _json_rules(lines, source, where)
    elif terms := tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")):
        yield _rule({"terms": terms}, source, f"{where}: file {bounded(source.path)}")


def with_terms_inside(settings: GuardrailConfig) -> GuardrailConfig:
    """Return the same settings with the terms themselves in place of the files that hold them. Raises ConfigError."""
    policies = {}
    for name, policy in settings.policies.items():
        read = [rule for number, file in enumerate(policy.terms_files) for rule in read_terms(file, f"{name}.{number}")]
        policies[name] = policy.model_copy(update={"terms": (*policy.terms, *read), "terms_files": ()})
    return settings.model_copy(update={"policies": policies})


def _json_rules(lines: list[str], source: TermsFile, where: str) -> Iterator[TermRule]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{where}: file {bounded(source.path)}, line {number}"
        try:
            raw = json.loads(line)
        except ValueError:
            raise ConfigError(f"{place}: the line is not JSON", "guardrail") from None
        if not isinstance(raw, dict):
            raise ConfigError(f"{place}: the line must be an object with the key 'term'", "guardrail")
        yield _rule(raw, source, place)


def _rule(raw: dict[str, object], source: TermsFile, place: str) -> TermRule:
    defaults = source.model_dump(include={"category", "action", "whole_word", "directions"}, by_alias=True)
    try:
        return TermRule.model_validate({**defaults, **raw})
    except ValidationError as error:
        raise ConfigError(describe(error, f"{place}:"), "guardrail") from None
