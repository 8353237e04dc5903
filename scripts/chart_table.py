"""Writes the tables of values in the chart's README from the Pydantic models."""

from __future__ import annotations

from app.config.chart.pods import WorkerGroup
from app.config.chart.values import ChartValues
from scripts.chart_rows import GROUPS, Row, flow, rows


def table() -> str:
    """Return the README's tables: one per group, one row per key."""
    out = []
    for title, names in GROUPS.items():
        out += [f"### {title}", "", "| key | default | what it is |", "|---|---|---|"]
        for row in rows(ChartValues(), names=names):
            out.append(_table_row(row))
            if row.path == ("workerGroups",):
                out += [_table_row(_of_group(inner)) for inner in rows(WorkerGroup(name="x"))]
        out.append("")
    return "\n".join(out)


def _of_group(row: Row) -> Row:
    blank = row.path == ("name",)
    return Row(("workerGroups[]", *row.path), row.description, row.default, row.unset or blank, row.nested)


def _table_row(row: Row) -> str:
    default = "" if row.nested or row.unset else f"`{flow(row.default)}`"
    if row.path == ("workerGroups",):
        default = "two groups, `gpu-workers` and `cpu-workers`"
    cells = (f"`{'.'.join(row.path)}`", default, row.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
