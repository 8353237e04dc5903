"""Builds Grafana's JSON from rows and panels: layout, variables and links are the same on every board."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    GridPos,
    VariableOption,
    VariableRefresh,
)

#: What every query of a board is limited to.
SCOPE = 'namespace="$namespace",job="$job"'
WINDOW = "$__rate_interval"
_COLUMNS = 24
_HEIGHT = 8
_SOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``queries`` are (expression, legend); ``unit`` is Grafana's name of it."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One board; ``uid`` is its address and the name of its file."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


def render(board: Board) -> str:
    """Return the board's JSON."""
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["baton"])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .link(
            dashboard.DashboardLink("Boards")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["baton"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .link(
            dashboard.DashboardLink("Alerts")
            .type(DashboardLinkType.LINK)
            .url("/alerting/list?search=Baton")
            .tooltip("Alerts of Baton; each links to its section of the runbook")
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("namespace", "Namespace", "label_values(ray_baton_requests_total, namespace)"))
        .with_variable(
            _variable("job", "Release", 'label_values(ray_baton_requests_total{namespace="$namespace"}, job)')
        )
        .with_variable(
            _variable("variant", "Variant", f"label_values(ray_baton_variant_outcomes_total{{{SCOPE}}}, variant)")
            .include_all(True)
            .all_value(".*")
            .multi(True)
            .current(VariableOption(text="All", value="$__all"))
        )
    )
    top = 0
    for row in board.rows:
        built.with_row(dashboard.Row(row.title).grid_pos(GridPos(h=1, w=_COLUMNS, x=0, y=top)))
        top = _place(built, row, top + 1)
    text = json.dumps(built.build(), cls=JSONEncoder, sort_keys=True, indent=1, ensure_ascii=False)
    return text + "\n"


def _place(built: dashboard.Dashboard, row: Row, top: int) -> int:
    """Put the panels of a row side by side and return the line below them."""
    left = 0
    for panel in row.panels:
        if left + panel.width > _COLUMNS:
            left, top = 0, top + _HEIGHT
        built.with_panel(_panel(panel).grid_pos(GridPos(h=_HEIGHT, w=panel.width, x=left, y=top)))
        left += panel.width
    return top + _HEIGHT


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(_SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _panel(panel: Panel) -> Any:
    built: Any = timeseries.Panel() if panel.kind == "timeseries" else stat.Panel()
    built.title(panel.title).description(panel.description).unit(panel.unit).datasource(_SOURCE)
    if panel.kind == "timeseries":
        legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
        built.legend(legend.show_legend(True)).min(0)
        built.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    for place, (expression, title) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(title).ref_id(chr(ord("A") + place))
        built.with_target(query)
    return built
