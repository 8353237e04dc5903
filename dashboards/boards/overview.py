"""Whether the pipeline is healthy and its promises are kept."""

from __future__ import annotations

from dashboards.board import SCOPE, Board, Panel, Row
from dashboards.boards import serve
from dashboards.boards.asks import VARIANT, largest, quantiles, rate, total
from dashboards.promql import ANSWERING, GIVEN
from dashboards.slos import SLOS

_KEPT = tuple(
    Panel(
        f"{slo.name}: budget burnt in 6 h",
        f"{slo.promise} How many times as fast as allowed the budget for the rest was used over six hours: 1 just "
        "lasts a month.",
        "none",
        ((f'baton_slo:error_ratio:rate6h{{{SCOPE},slo="{slo.name}"}} / {1 - slo.objective:.6g}', slo.name),),
        "stat",
        6,
    )
    for slo in SLOS
)
_OVER_TIME = Panel(
    "Share of bad requests, by objective",
    "Over five minutes; the alerts compare longer windows as well.",
    "percentunit",
    ((f"baton_slo:error_ratio:rate5m{{{SCOPE}}}", "{{slo}}"),),
    width=12,
)
_ALERTS = Panel(
    "Alerts that fire",
    "Each has a section in the runbook under its name.",
    "none",
    (
        (
            f'sum by (alertname, severity) (ALERTS{{alertname=~"Baton.+",alertstate="firing",{SCOPE}}})',
            "{{alertname}}",
        ),
    ),
    width=12,
)

BOARD = Board(
    "baton-overview",
    "Baton / Overview",
    "Whether the pipeline keeps its promises.",
    (
        Row("Objectives", (*_KEPT, _OVER_TIME, _ALERTS)),
        Row(
            "Requests",
            (
                Panel(
                    "Questions by how they ended",
                    "Blocked by the guardrail, refused for the caller's mistake, cancelled by the caller, shed, late, "
                    "or failed.",
                    "reqps",
                    ((rate("ray_baton_requests_total", ANSWERING, VARIANT, by=("outcome",)), "{{outcome}}"),),
                ),
                Panel(
                    "Questions by profile and priority",
                    "Requests that named none of the two have empty names.",
                    "reqps",
                    (
                        (
                            rate("ray_baton_requests_total", ANSWERING, VARIANT, by=("profile", "priority")),
                            "{{profile}} {{priority}}",
                        ),
                    ),
                ),
                Panel(
                    "Requests by route and status",
                    "Every route of the gateway, probes included.",
                    "reqps",
                    ((rate("ray_baton_requests_total", by=("route", "status")), "{{route}} {{status}}"),),
                ),
                Panel(
                    "End to end",
                    "From the request to the last byte, answered questions only.",
                    "ms",
                    quantiles("ray_baton_request_milliseconds", ANSWERING, 'outcome="answered"', VARIANT),
                ),
                Panel(
                    "Time to first token",
                    "From the request to the first piece that the engine sent.",
                    "ms",
                    quantiles("ray_baton_time_to_first_token_milliseconds", VARIANT, GIVEN),
                ),
                Panel(
                    "Tokens",
                    "Read (in) and generated (out).",
                    "short",
                    ((rate("ray_baton_tokens_total", by=("model", "direction")), "{{model}} {{direction}} /s"),),
                ),
            ),
        ),
        Row(
            "Answers",
            (
                Panel(
                    "Grounding",
                    "Share of an answer that its passages carry.",
                    "percentunit",
                    quantiles("ray_baton_grounding", VARIANT, GIVEN),
                    width=6,
                ),
                Panel(
                    "Confidence",
                    "Probability that an answer is right, as the reply states it.",
                    "percentunit",
                    quantiles("ray_baton_confidence"),
                    width=6,
                ),
                Panel(
                    "JSON answers",
                    "Checked against the response format; truncated ones ran into max_tokens.",
                    "ops",
                    ((rate("ray_baton_json_total", VARIANT, GIVEN, by=("status",)), "{{status}}"),),
                    width=6,
                ),
                Panel(
                    "Configuration",
                    "Number of versions of the settings in force per deployment (1 where all replicas agree), and "
                    "refused changes.",
                    "none",
                    (
                        (
                            'count by (deployment) (count_values by (deployment) ("version", '
                            + largest("ray_baton_config_version", by=("deployment", "WorkerId"))
                            + "))",
                            "{{deployment}} versions",
                        ),
                        (total("ray_baton_config_refused_total", by=("deployment",)), "{{deployment}} refused"),
                    ),
                    width=6,
                ),
                Panel(
                    "API keys",
                    "Time until nothing opens a key any more; keys without a known end are left out.",
                    "s",
                    (
                        (
                            f"({largest('ray_baton_key_expires_timestamp_seconds', by=('key',))} > 0) - time()",
                            "{{key}}",
                        ),
                    ),
                    width=6,
                ),
            ),
        ),
        serve.row(),
    ),
)
