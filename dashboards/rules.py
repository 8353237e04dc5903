"""Rule groups as Prometheus reads them, and the runbook with a section per alert."""

from __future__ import annotations

from typing import Any

import yaml

from dashboards.alerts import ALERTS, Alert
from dashboards.promql import AWAITED, BY, GIVEN, RELEASE, quantile, rate, select
from dashboards.slos import FAST, SLOS, SLOW, WINDOWS

_BANNER = "# Written by `make generate` from dashboards/; change that, not this file.\n"
#: The chart puts the address of the runbook in its place.
RUNBOOK = "docs/runbook.md"
#: Paths of boards on Grafana; the chart puts its address before them.
BOARDS = "/d/"
#: The chart puts the release's job in its place.
JOB = "baton-metrics"
#: The chart puts the release's job in its place; not every alert has it for a label.
_JOB = f"var-job={JOB}"
_SLOW_WINDOWS = ("1d", "3d")
#: Those in which there have to be more than a few bad requests.
_LONG_WINDOWS = {pair.long for pair in (*FAST, *SLOW)}
_QUEUES = "ray_serve_deployment_queued_queries|ray_vllm_num_requests_waiting"


def groups() -> dict[str, Any]:
    """Return the rule groups."""
    return {
        "groups": [
            {
                "name": "baton-slo",
                "rules": [rule for window in WINDOWS for rule in _ratios(window) if window not in _SLOW_WINDOWS],
            },
            {
                "name": "baton-slo-slow",
                "interval": "2m",
                "rules": [rule for window in _SLOW_WINDOWS for rule in _ratios(window)],
            },
            {"name": "baton-records", "rules": _records()},
            {"name": "baton-alerts", "rules": [_alert(alert) for alert in ALERTS]},
        ]
    }


def _ratios(window: str) -> list[dict[str, Any]]:
    records = [
        (f"baton_slo:{name}{window}", slo.name, expr.replace("{window}", window))
        for slo in SLOS
        for name, expr in (
            ("errors:increase", slo.errors),
            ("error_ratio:rate", f"({slo.errors}) / ({slo.requests})"),
        )
        if window in _LONG_WINDOWS or name == "error_ratio:rate"
    ]
    return [{"record": record, "labels": {"slo": slo}, "expr": expr} for record, slo, expr in records]


def _records() -> list[dict[str, Any]]:
    by = ", ".join(BY)
    queued = f'{select("ray_baton_queued", AWAITED)} or {{__name__=~"{_QUEUES}",{RELEASE}}}'
    return [
        {
            "record": "baton:requests:rate5m",
            "expr": rate("ray_baton_requests_total", "5m", by=(*BY, "route", "outcome", "profile")),
        },
        {
            "record": "baton:time_to_first_token_milliseconds:p95_5m",
            "expr": quantile(0.95, "ray_baton_time_to_first_token_milliseconds", "5m", GIVEN, by=(*BY, "model")),
        },
        {"record": "baton:queued:sum", "expr": f"sum by ({by}) ({queued})"},
    ]


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.wait,
        # What other exporters tell of has no job, or theirs; Alertmanager and boards tell releases apart by it.
        "labels": {"severity": alert.severity, "job": JOB},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{RUNBOOK}#{alert.name.lower()}",
            "dashboard_url": f"{BOARDS}{alert.board}?var-namespace={{{{ $labels.namespace }}}}&{_JOB}",
        },
    }


def rules_yaml() -> str:
    """Return the text of the rules' file."""
    return _BANNER + yaml.safe_dump(groups(), sort_keys=False, allow_unicode=True, width=1000)


def runbook() -> str:
    """Return the runbook."""
    lines = [
        "# Runbook",
        "",
        "What to do when an alert of Baton fires. `critical` wakes somebody: users are hurt, a text passes the",
        "guardrail unjudged, or nothing is watched any more. `warning` waits for the morning. Written by",
        "`make generate` from `dashboards/alerts.py`.",
    ]
    for need in sorted({alert.needs for alert in ALERTS} - {""}):
        named = ", ".join(f"[{alert.name}](#{alert.name.lower()})" for alert in ALERTS if alert.needs == need)
        lines += ["", f"Silent unless Prometheus scrapes {need}: {named}."]
    for alert in ALERTS:
        needs = f"; needs {alert.needs}" if alert.needs else ""
        lines += ["", f"## {alert.name}", ""]
        lines += [
            f"*{alert.severity}, after {alert.wait}; board `{alert.board}`{needs}.* {_plain(alert.description)}",
            "",
        ]
        lines += ["Look at:", "", *(f"- {line}" for line in alert.look), "", "Do:", ""]
        lines += [f"- {line}" for line in alert.do]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return a description without the template's values."""
    for found, plain in (
        ("{{ $value | humanizePercentage }}", "A share"),
        ("{{ $value | humanize1024 }}B", "Some"),
        ("{{ $value | humanizeDuration }}", "few days"),
        ("{{ $value | humanize }}", "N"),
        ("{{ $value }}", "N"),
    ):
        text = text.replace(found, plain)
    return text.replace("{{ $labels.", "`").replace(" }}", "`")
