"""What the doctor finds, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``mend`` says what to do about it, and is empty where nothing has to be done."""

    level: Level
    topic: str
    text: str
    mend: str = ""


def ok(topic: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding("ok", topic, text)


def warning(topic: str, text: str, mend: str) -> Finding:
    """Return something that works, or may work, and is better changed."""
    return Finding("warning", topic, text, mend)


def fault(topic: str, text: str, mend: str) -> Finding:
    """Return something that keeps the release from serving."""
    return Finding("fault", topic, text, mend)


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings for people: one line each, the mend under it, the count at the end."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:8}{finding.topic}: {finding.text}")
        if finding.mend:
            lines.append(f"{'':10}mend: {finding.mend}")
    return "\n".join([*lines, _count(findings)])


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings for programs."""
    counts = {level: sum(finding.level == level for finding in findings) for level in ("ok", "warning", "fault")}
    return json.dumps({"counts": counts, "findings": [asdict(finding) for finding in findings]}, indent=2)


def _count(findings: Sequence[Finding]) -> str:
    faults = sum(finding.level == "fault" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    verdict = "the release cannot serve like this" if faults else "the cluster has what these values need"
    return f"{_number(faults, 'fault')}, {_number(warnings, 'warning')}: {verdict}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
