"""Draws each board as a picture from a Prometheus with real traffic, for the documentation and for looking at it.

python -m dashboards.pictures --prometheus http://127.0.0.1:9090 --minutes 10
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import matplotlib as mpl

from dashboards.output import BOARDS, ROOT, board_path

_POINTS = 120
_COLUMNS = 3
_LEGENDS = 2  # side by side below a panel
_NAME = 42  # characters of a legend that fit there
_SCALES = {"percentunit": (100, "%"), "percent": (1, "%"), "bytes": (1 / 2**30, "GiB"), "Bps": (1 / 2**20, "MiB/s")}
_UNITS = {"ms": "ms", "s": "s", "reqps": "requests/s", "ops": "1/s", "watt": "W", "joule": "J"}
#: Board, panel and the letter of one of its queries.
Query = tuple[str, str, str]
#: Legend and rows of one query, as Prometheus answers it.
Answer = tuple[str, list[dict[str, Any]]]
#: Name and points (minute, value) of one curve.
Line = tuple[str, list[tuple[float, float]]]
_NO_GPU = "no GPU"
#: Queries that may bring nothing, with the reason.
WAIVED: dict[Query, str] = {
    ("baton-overview", "Alerts that fire", "A"): "none fired",
    ("baton-overview", "API keys", "A"): "`make run` has none",
    ("baton-overview", "Configuration", "B"): "no change was refused",
    ("baton-pipeline", "Failing open", "A"): "the policy of `make run` asks no classifier",
    ("baton-pipeline", "Trouble by stage", "D"): "no replica died and no stage of its own was full",
    ("baton-cluster", "Nodes", "B"): "no autoscaler",
    **{("baton-cluster", f"GPU {what}", query): _NO_GPU for what in ("load", "memory", "power") for query in "AB"},
    ("baton-cluster", "Energy per request", "A"): _NO_GPU,
    ("baton-cluster", "Energy per 1,000 tokens", "A"): _NO_GPU,
}
_NAMESPACE, _JOB = "baton", "baton-metrics"


def series(client: httpx.Client, expression: str, start: float, end: float, window: str) -> list[dict[str, Any]]:
    """Return Prometheus' answer to one query. Raises ValueError with the query that it refused."""
    for name, value in (
        ("$__rate_interval", window),
        ("$__range_s", f"{end - start:.0f}"),
        ("$__range", f"{end - start:.0f}s"),
        ("$namespace", _NAMESPACE),
        ("$job", _JOB),
        ("$variant", ".*"),
    ):
        expression = expression.replace(name, value)
    step = (end - start) / _POINTS
    reply = client.get("/api/v1/query_range", params={"query": expression, "start": start, "end": end, "step": step})
    body = reply.json()
    if body["status"] != "success":
        raise ValueError(f"{expression}: {body.get('error')}")
    found: list[dict[str, Any]] = body["data"]["result"]
    return found


def _legend(pattern: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        pattern = pattern.replace(f"{{{{{name}}}}}", value)
    return re.sub(r"\{\{\w+\}\}", "-", pattern)  # a label that a row lacks


def _scale(panel: dict[str, Any]) -> tuple[float, str]:
    """Return what values are multiplied by, and their unit then."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return _SCALES.get(unit, (1, _UNITS.get(unit, "")))


def lines_of(panel: dict[str, Any], answers: list[Answer], end: float) -> list[list[Line]]:
    """Return the lines of each query: what Prometheus answered, scaled, over the minutes to ``end``."""
    factor, _ = _scale(panel)
    drawn: list[list[Line]] = []
    for pattern, found in answers:
        drawn.append([])
        for row in found:
            points = [((float(at) - end) / 60, float(value) * factor) for at, value in row["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                drawn[-1].append((_legend(pattern, row["metric"])[:_NAME], points))
    return drawn


def draw(axes: Any, panel: dict[str, Any], lines: list[Line]) -> None:
    """Draw one panel: curves over time above their legend, or what Grafana shows as numbers as the last ones."""
    axes.set_title(panel["title"], fontsize=9)
    if not lines:
        axes.text(0.5, 0.5, "nothing was recorded", ha="center", transform=axes.transAxes, fontsize=8)
    if panel["type"] == "stat" or not lines:
        axes.set_xticks([])
        axes.set_yticks([])
        _numbers(axes, panel, lines)
        return
    for name, points in lines:
        axes.plot(*zip(*points, strict=True), linewidth=1.2, label=name)
    axes.set_ylabel(_scale(panel)[1], fontsize=7)
    axes.tick_params(labelsize=6)
    if min(value for _, points in lines for _, value in points) >= 0:
        axes.set_ylim(bottom=0)
    axes.legend(
        fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=_LEGENDS, frameon=False, borderaxespad=0
    )


def _numbers(axes: Any, panel: dict[str, Any], lines: list[Line]) -> None:
    unit = _scale(panel)[1]
    for place, (name, points) in enumerate(lines):
        height = 1 - (place + 0.5) / len(lines)
        axes.text(0.04, height, name, ha="left", va="center", transform=axes.transAxes, fontsize=8)
        text = f"{points[-1][1]:,.2f} {unit}".rstrip()
        axes.text(0.96, height, text, ha="right", va="center", transform=axes.transAxes, fontsize=14)


def _height(panel: dict[str, Any], lines: list[Line]) -> float:
    """Return the inches that a panel needs: its curves, and the legend's rows below them."""
    if panel["type"] == "stat":
        return max(1.0, 0.35 * len(lines) + 0.3)
    return 2.4 + 0.15 * math.ceil(len(lines) / _LEGENDS)


def picture(client: httpx.Client, uid: str, minutes: float, end: float, folder: Path) -> list[Query]:
    """Draw one board; return its queries without a line. Raises ValueError with a query that Prometheus refused."""
    board = json.loads(board_path(uid).read_text(encoding="utf-8"))
    empty: list[Query] = []
    filled: list[tuple[dict[str, Any], list[Line]]] = []
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        targets = panel["targets"]
        answers = [
            (target["legendFormat"], series(client, target["expr"], end - minutes * 60, end, "1m"))
            for target in targets
        ]
        drawn = lines_of(panel, answers, end)
        empty += [
            (uid, panel["title"], target["refId"]) for target, found in zip(targets, drawn, strict=True) if not found
        ]
        filled.append((panel, [line for found in drawn for line in found]))
    _save(f"{board['title']} (minutes before the end)", filled, folder / f"{uid}.png")
    return empty


def _save(title: str, filled: list[tuple[dict[str, Any], list[Line]]], path: Path) -> None:
    """Draw panels side by side, each row as high as its highest one."""
    from matplotlib import pyplot

    rows = [filled[start : start + _COLUMNS] for start in range(0, len(filled), _COLUMNS)]
    heights = [max(_height(panel, lines) for panel, lines in row) for row in rows]
    figure, grid = pyplot.subplots(
        len(rows),
        _COLUMNS,
        figsize=(15, sum(heights) + 0.5),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": heights},
    )
    for axes in grid.flat[len(filled) :]:
        axes.set_axis_off()
    for axes, (panel, lines) in zip(grid.flat, filled, strict=False):
        draw(axes, panel, lines)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def main() -> int:
    """Draw every board into docs/boards; return 1 where a query brings nothing that must bring something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="address of the Prometheus")
    parser.add_argument("--minutes", type=float, default=10, help="how far to look back")
    parser.add_argument("--end", type=float, default=0, help="the end as seconds since 1970; 0: now")
    options = parser.parse_args()
    mpl.use("Agg")
    folder = ROOT / "docs" / "boards"
    folder.mkdir(exist_ok=True)
    faults = 0
    with httpx.Client(base_url=options.prometheus, timeout=60) as client:
        for board in BOARDS:
            for query in picture(client, board.uid, options.minutes, options.end or time.time(), folder):
                print(f"{': '.join(query)} brings nothing: {WAIVED.get(query, 'this must not be')}")
                faults += query not in WAIVED
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
