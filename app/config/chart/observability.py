"""What makes a release visible: monitors, rules and boards for Prometheus and Grafana."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.config.base import Config
from app.config.chart.kinds import HttpAddress, Labels


class ObservabilityValues(Config):
    """Monitors, alert rules and boards."""

    when: Literal["auto", "always", "never"] = "auto"
    """Whether they are made; `auto`: where the cluster has the CRDs of the Prometheus operator."""
    monitor: Literal["ServiceMonitor", "PodMonitor"] = "ServiceMonitor"
    """How Prometheus finds the Ray pods: by the Service `<name>-metrics`, or one by one."""
    interval: Annotated[str, Field(pattern=r"^[0-9]+(ms|s|m)$")] = "15s"
    """How often metrics are read; Ray's processes report every ten seconds."""
    labels: Labels = Field(default_factory=dict)
    """Labels that your Prometheus selects monitors and rules by, such as `release: kube-prometheus-stack`."""
    dashboard_labels: Labels = Field(default_factory=lambda: {"grafana_dashboard": "1"})
    """Labels that Grafana's sidecar selects boards by."""
    runbook_url: HttpAddress = ""
    """Where docs/runbook.md can be read, for the links of alerts; empty: its path in the repository."""
    grafana_url: HttpAddress = ""
    """Address of Grafana, for the links from alerts to boards; empty: the boards' paths on it."""
