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
#: Panels that may be empty, with the reason.
WAIVED = {
    "Alerts that fire": "none fired",
    "API keys": "`make run` has none",
    "Failing open": "the policy of `make run` asks no classifier",
    "GPU load": "no GPU",
    "GPU memory": "no GPU",
    "GPU power": "no GPU",
    "Energy per request": "no GPU",
    "Energy per 1,000 tokens": "no GPU",
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


def _draw(axes: Any, panel: dict[str, Any], answers: list[tuple[str, list[dict[str, Any]]]], end: float) -> int:
    """Draw one panel and return how many lines it has."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    factor, name = _SCALES.get(unit, (1, _UNITS.get(unit, "")))
    lines = 0
    for pattern, found in answers:
        for row in found:
            points = [((float(at) - end) / 60, float(value) * factor) for at, value in row["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                axes.plot(*zip(*points, strict=True), linewidth=1.2, label=_legend(pattern, row["metric"])[:42])
                lines += 1
    axes.set_title(panel["title"], fontsize=9)
    axes.set_ylabel(name, fontsize=7)
    axes.tick_params(labelsize=6)
    axes.set_ylim(bottom=0)
    if lines:
        axes.legend(fontsize=5, loc="upper left", ncols=1 if lines < 5 else 2, framealpha=0.6)
    else:
        axes.text(0.5, 0.5, "nothing was recorded", ha="center", transform=axes.transAxes, fontsize=8)
    return lines


def picture(client: httpx.Client, uid: str, minutes: float, end: float, folder: Path) -> list[str]:
    """Draw one board; return the titles of panels without a line."""
    from matplotlib import pyplot

    board = json.loads(board_path(uid).read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    rows = math.ceil(len(panels) / _COLUMNS)
    figure, grid = pyplot.subplots(rows, _COLUMNS, figsize=(15, 2.6 * rows), squeeze=False, layout="constrained")
    empty = []
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.set_axis_off()
            continue
        panel = panels[place]
        answers = [
            (target["legendFormat"], series(client, target["expr"], end - minutes * 60, end, "1m"))
            for target in panel["targets"]
        ]
        if not _draw(axes, panel, answers, end):
            empty.append(panel["title"])
    figure.suptitle(f"{board['title']} (minutes before the end)", fontsize=11)
    figure.savefig(folder / f"{uid}.png", dpi=90)
    pyplot.close(figure)
    return empty


def main() -> int:
    """Draw every board into docs/boards; return 1 where a panel is empty that must not be."""
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
            empty = picture(client, board.uid, options.minutes, options.end or time.time(), folder)
            for title in empty:
                print(f"{board.uid}: {title} is empty: {WAIVED.get(title, 'this must not be')}")
                faults += title not in WAIVED
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
