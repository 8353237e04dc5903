"""Every generated file of this package with its text."""

from __future__ import annotations

from pathlib import Path

from dashboards import rules

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "charts" / "baton" / "files"
RULES = FILES / "rules" / "baton.yaml"


def files() -> dict[Path, str]:
    """Return path → text."""
    return {RULES: rules.rules_yaml(), ROOT / "docs" / "runbook.md": rules.runbook()}
