"""What the caller gets beside the text: the best of the answers, flags and the passages behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.messages import Delta, Prompt, Report, Retrieved
from app.outgoing import OutgoingChoice


@dataclass(frozen=True)
class PassageVerdict:
    """What the guardrail made of the passages: rows to drop, and rows to show with other text."""

    blocked: tuple[int, ...] = ()
    redacted: Mapping[int, str] = field(default_factory=dict)


def best_of(report: Report, choices: list[OutgoingChoice]) -> tuple[Report, list[Delta]]:
    """Renumber the kept candidates, best first, and return what each would have streamed."""
    reports = [replace(kept, index=number) for number, kept in enumerate(report.choices)]
    deltas = [
        replace(delta, index=number)
        for number, kept in enumerate(report.choices)
        for delta in choices[kept.index].released
    ]
    return Report(tuple(reports)), deltas


def flags_of(prompt: Prompt, payload: Retrieved | None) -> dict[str, Any]:
    """Return what the caller should know of how the answer came about; ``payload`` is what retrieval found, if any."""
    flags: dict[str, Any] = {}
    if payload is not None:
        if not prompt.rows:
            flags["without_context"] = True
        if payload.question_truncated:
            flags["question_truncated"] = True
    if prompt.cut_passages:
        flags["cut_passages"] = prompt.cut_passages
    if prompt.cut_turns:
        flags["cut_turns"] = prompt.cut_turns
    return flags


def contexts_of(prompt: Prompt, payload: Retrieved, verdict: PassageVerdict) -> Iterator[Mapping[str, Any]]:
    """Yield the passages as the model saw them, without those that the guardrail refused."""
    marks = {row: number for number, row in enumerate(prompt.rows, start=1)}
    for row, passage in passages_of(payload, verdict):
        yield {**passage, "mark": marks.get(row)}


def passages_of(payload: Retrieved, verdict: PassageVerdict) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield row and content of the passages that are meant for the prompt and that the guardrail lets through."""
    shown = payload.passages.select(["id", "collection", "source", "score", "text"]).slice(0, payload.top_k)
    for row, passage in enumerate(shown.to_pylist()):
        if row not in verdict.blocked:
            yield row, {**passage, "text": verdict.redacted.get(row, passage["text"])}
