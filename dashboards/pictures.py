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
_SCALES = {"percentunit": (100, "%"), "percent": (1, "%"), "bytes": (1 / 2**30, "GiB"), "Bps": (1 / 2**20, "MiB/s")}
_UNITS = {"ms": "ms", "s": "s", "reqps": "requests/s", "ops": "1/s", "watt": "W", "joule": "J"}
#: Board, panel and the letter of one of its queries.
Query = tuple[str, str, str]
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


def _draw(axes: Any, panel: dict[str, Any], answers: list[tuple[str, list[dict[str, Any]]]], end: float) -> list[int]:
    """Draw one panel and return how many lines each of its queries has."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    factor, name = _SCALES.get(unit, (1, _UNITS.get(unit, "")))
    lines = []
    for pattern, found in answers:
        lines.append(0)
        for row in found:
            points = [((float(at) - end) / 60, float(value) * factor) for at, value in row["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                axes.plot(*zip(*points, strict=True), linewidth=1.2, label=_legend(pattern, row["metric"])[:42])
                lines[-1] += 1
    axes.set_title(panel["title"], fontsize=9)
    axes.set_ylabel(name, fontsize=7)
    axes.tick_params(labelsize=6)
    axes.set_ylim(bottom=0)
    if any(lines):
        axes.legend(fontsize=5, loc="upper left", ncols=1 if sum(lines) < 5 else 2, framealpha=0.6)
    else:
        axes.text(0.5, 0.5, "nothing was recorded", ha="center", transform=axes.transAxes, fontsize=8)
    return lines


def picture(client: httpx.Client, uid: str, minutes: float, end: float, folder: Path) -> list[Query]:
    """Draw one board; return its queries without a line. Raises ValueError with a query that Prometheus refused."""
    from matplotlib import pyplot

    board = json.loads(board_path(uid).read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    rows = math.ceil(len(panels) / _COLUMNS)
    figure, grid = pyplot.subplots(rows, _COLUMNS, figsize=(15, 2.6 * rows), squeeze=False, layout="constrained")
    empty: list[Query] = []
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.set_axis_off()
            continue
        panel = panels[place]
        answers = [
            (target["legendFormat"], series(client, target["expr"], end - minutes * 60, end, "1m"))
            for target in panel["targets"]
        ]
        drawn = zip(panel["targets"], _draw(axes, panel, answers, end), strict=True)
        empty += [(uid, panel["title"], target["refId"]) for target, lines in drawn if not lines]
    figure.suptitle(f"{board['title']} (minutes before the end)", fontsize=11)
    figure.savefig(folder / f"{uid}.png", dpi=90)
    pyplot.close(figure)
    return empty


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
