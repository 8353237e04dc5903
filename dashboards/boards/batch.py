"""How far batches are, and what their rows take from those who wait for an answer."""

from __future__ import annotations

from dashboards.board import Board, Panel, Row
from dashboards.boards import serve
from dashboards.boards.asks import quantile, rate, total
from dashboards.promql import ANSWERING

_BY_CLASS = ("priority",)

_ROWS = Row(
    "batches",
    (
        Panel(
            "Rows that end",
            "Rows of the gateways' own batches and of RayJobs, answered or failed.",
            "short",
            ((rate("ray_baton_batch_rows_total", by=("outcome",)), "{{outcome}} /s"),),
        ),
        Panel(
            "Rows at work",
            "Rows that are being answered or wait for room.",
            "none",
            ((total("ray_baton_batch_rows_at_work", by=("namespace",)), "rows"),),
        ),
        Panel(
            "Requests of the class batch",
            "Rows as the gateway sees them, those of Jobs included, by how they end; shed ones come again.",
            "reqps",
            ((rate("ray_baton_requests_total", ANSWERING, 'priority="batch"', by=("outcome",)), "{{outcome}}"),),
        ),
    ),
)
_OTHERS = Row(
    "beside those who wait",
    (
        Panel(
            "Places held",
            "Requests that hold a place of a model, by priority class.",
            "none",
            ((total("ray_baton_ongoing", 'stage="generator"', by=_BY_CLASS), "{{priority}}"),),
        ),
        Panel(
            "Wait for a place",
            "95th percentile per class: that of `interactive` should not rise when batches run.",
            "ms",
            ((quantile(0.95, "ray_baton_queue_milliseconds", 'stage="generator"', by=_BY_CLASS), "{{priority}} p95"),),
        ),
        Panel(
            "Shed",
            "Requests refused because a queue was full, by priority class; of `batch` they are asked again.",
            "reqps",
            ((rate("ray_baton_sheds_total", by=_BY_CLASS), "{{priority}}"),),
        ),
    ),
)

BOARD = Board(
    "baton-batch",
    "Baton / Batch",
    "How far batches are, and what their rows take from those who wait for an answer.",
    (_ROWS, _OTHERS, serve.row('deployment=~"gateway|generator"')),
)
