"""Generates the Grafana boards, the Prometheus rules and the runbook; the output is committed."""
