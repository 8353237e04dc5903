"""Serve's own view of deployments: the row that every board has of those that it is about."""

from __future__ import annotations

from dashboards.board import Panel, Row
from dashboards.boards.asks import largest, quantile, rate, total

#: How rows of deployments are told apart, and what they are called in a legend.
BY = ("application", "deployment")
NAMES = "{{application}} {{deployment}}"


def requests(*matchers: str, width: int = 8) -> Panel:
    """Return the panel of calls."""
    return Panel(
        "Requests by deployment",
        "Calls of each deployment.",
        "reqps",
        ((rate("ray_serve_deployment_request_counter_total", *matchers, by=BY), NAMES),),
        width=width,
    )


def latency(*matchers: str, width: int = 8) -> Panel:
    """Return the panel of slow calls."""
    return Panel(
        "99th percentile by deployment",
        "Serve's processing latency, streams to their end.",
        "ms",
        ((quantile(0.99, "ray_serve_deployment_processing_latency_ms", *matchers, by=BY), NAMES),),
        width=width,
    )


def errors(*matchers: str, width: int = 8) -> Panel:
    """Return the panel of calls that raised."""
    return Panel(
        "Errors by deployment",
        "Calls that raised; refusals of ours (a blocked text) are among them.",
        "reqps",
        (
            (
                rate("ray_serve_deployment_error_counter_total", *matchers, by=(*BY, "exception_type")),
                NAMES + " {{exception_type}}",
            ),
        ),
        width=width,
    )


def replicas(*matchers: str, width: int = 8) -> Panel:
    """Return the panel of replicas wanted and there."""
    return Panel(
        "Replicas wanted and healthy",
        "Where the two differ for long, nodes or GPUs are missing.",
        "none",
        (
            (largest("ray_serve_autoscaling_target_replicas", *matchers, by=BY), NAMES + " wanted"),
            (total("ray_serve_deployment_replica_healthy", *matchers, by=BY), NAMES + " healthy"),
        ),
        width=width,
    )


def row(*matchers: str) -> Row:
    """Return the row of the deployments that ``matchers`` select; without any, of all."""
    return Row("Serve", tuple(panel(*matchers, width=6) for panel in (latency, requests, errors, replicas)))
