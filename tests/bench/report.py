"""Draws the results of the benches: `docs/benchmarks.md`, one picture per plot, and the README's table.

`python -m tests.bench.report` draws them anew from `tests/bench/results/` without measuring.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "bench"
README = ROOT / "README.md"
_MARKS = ("<!-- benchmarks: written by `make bench` -->", "<!-- end of benchmarks -->")
_CLAIM_COLUMNS = ["", "claimed by the field", "goal", "measured here", "met"]
#: Results by the order of the page; the README shows the claims and the first plot of the first.
ORDER = ("handoff", "overhead", "microservices", "streams", "observing", "batching", "weights", "guardrail")
_LABEL_CHARS = 14


def write_report(results: Path) -> None:
    """Write page, pictures and the README's section from all results that are there."""
    found = read_results(results)
    PICTURES.mkdir(exist_ok=True)
    for result in found:
        for number, plot in enumerate(result["plots"]):
            draw(plot, PICTURES / picture_name(result, number))
    PAGE.write_text("\n".join(page_lines(found)) + "\n", encoding="utf-8")
    README.write_text(with_section(README.read_text(encoding="utf-8"), found), encoding="utf-8")


def read_results(results: Path) -> list[dict[str, Any]]:
    """Return the kept results in the page's order."""
    paths = [path for name in ORDER if (path := results / f"{name}.json").exists()]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def with_section(readme: str, results: list[dict[str, Any]]) -> str:
    """Return the README's text with its section on these results."""
    before, after = _MARKS
    section = "\n".join([before, *readme_lines(results), after])
    return re.sub(f"{re.escape(before)}.*{re.escape(after)}", lambda _: section, readme, flags=re.S)


def picture_name(result: dict[str, Any], number: int) -> str:
    return f"{result['name']}-{number + 1}.png"


def page_lines(results: list[dict[str, Any]]) -> list[str]:
    """Return the page: per bench its goals, tables, plots and levers."""
    lines = ["# Benchmarks", "", "Written by `make bench` (15 minutes); drawn from `tests/bench/results/`.", ""]
    lines += [
        "Ratios come from one run with the contestants in turn; ranges are 95 % bootstrap intervals. Times belong"
    ]
    lines += ["to the machine they were taken on and mean little elsewhere.", ""]
    for result in results:
        lines += result_lines(result)
    return lines


def result_lines(result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    lines = [f"## {result['title']}", ""]
    lines += [f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, commit {result['commit']},"]
    lines += [f"{result['date']}, load {machine['load_before']:.1f} at the start.", ""]
    if result["claims"]:
        lines += markdown(_CLAIM_COLUMNS, claim_rows(result))
        lines += [f"- {claim['what']}: {claim['reason']}" for claim in result["claims"] if claim["reason"]] + [""]
    for table in result["tables"]:
        lines += [f"### {table['title']}", "", *markdown(table["columns"], table["rows"])]
    for number, plot in enumerate(result["plots"]):
        lines += [f"![{plot['title']}](bench/{picture_name(result, number)})", ""]
    if result["levers"]:
        lines += ["### Levers", "", *(f"- **{each['lever']}**: {each['gave']}" for each in result["levers"]), ""]
    return lines + [f"{note}\n" for note in result["notes"]]


def claim_rows(result: dict[str, Any]) -> list[list[str]]:
    return [
        [claim["what"], claim["claimed"] or "–", claim["goal"], claim["measured"], "yes" if claim["met"] else "**no**"]
        for claim in result["claims"]
    ]


def readme_lines(results: list[dict[str, Any]]) -> list[str]:
    """Return the README's section: every goal in one table, and the first picture of each of the first results."""
    rows = [row for result in results for row in claim_rows(result)]
    lines = ["", *markdown(_CLAIM_COLUMNS, rows)]
    for result in results[:2]:
        if result["plots"]:
            lines += [f"![{result['plots'][0]['title']}](docs/bench/{picture_name(result, 0)})", ""]
    return lines


def markdown(columns: list[str], rows: list[list[Any]]) -> list[str]:
    """Return a table and an empty line."""
    head = ["| " + " | ".join(columns) + " |", "|" + "|".join("---" for _ in columns) + "|"]
    return head + ["| " + " | ".join(map(_cell, row)) + " |" for row in rows] + [""]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def draw(plot: dict[str, Any], path: Path) -> None:
    """Draw one plot as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    series = plot["series"]
    if plot["kind"] == "bar":
        _bars(axes, plot["x"], series)
    else:
        for name, line in series.items():
            axes.plot(plot["x"], line, marker="o", label=name)
        if plot.get("logx"):
            axes.set_xscale("log")
    if plot.get("log"):
        axes.set_yscale("log")
    axes.set(title=plot["title"], xlabel=plot.get("xlabel", ""), ylabel=plot.get("ylabel", ""))
    axes.grid(axis="y", alpha=0.3)
    if len(series) > 1:
        axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axes: Any, labels: list[Any], series: dict[str, list[float]]) -> None:
    width = 0.8 / len(series)
    places = np.arange(len(labels))
    for number, (name, values) in enumerate(series.items()):
        bars = axes.bar(places + (number - (len(series) - 1) / 2) * width, values, width, label=name)
        axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=8, padding=2)
    long = any(len(str(label)) > _LABEL_CHARS for label in labels)
    axes.set_xticks(places, list(map(str, labels)), rotation=20 if long else 0, ha="right" if long else "center")
    axes.margins(y=0.15)


if __name__ == "__main__":
    write_report(ROOT / "tests" / "bench" / "results")
