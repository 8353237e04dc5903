"""Every generated file of this package with its text."""

from __future__ import annotations

from pathlib import Path

from dashboards import rules
from dashboards.board import render
from dashboards.boards import batch, cluster, engine, overview, pipeline, routing

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "charts" / "baton" / "files"
RULES = FILES / "rules" / "baton.yaml"
BOARDS = (overview.BOARD, pipeline.BOARD, engine.BOARD, routing.BOARD, batch.BOARD, cluster.BOARD)


def board_path(uid: str) -> Path:
    """Return where the board with this uid lies."""
    return FILES / "dashboards" / f"{uid}.json"


def files() -> dict[Path, str]:
    """Return path → text."""
    boards = {board_path(board.uid): render(board) for board in BOARDS}
    return {RULES: rules.rules_yaml(), ROOT / "docs" / "runbook.md": rules.runbook(), **boards}
