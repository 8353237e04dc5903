"""The z-scores of the routing board, worked out by promtool and by hand."""

import math

import yaml

from tests.dashboards import names
from tests.dashboards.test_rules import promtool

BOARD = names.boards()["baton-routing"]
#: Counts per minute of two variants: requests that were answered and that failed.
STABLE, CANARY = (90, 1), (10, 1)
MINUTES = 60


def expression(title):
    (panel,) = (found for found in names.panels(BOARD) if found["title"] == title)
    return names.filled(panel["targets"][0]["expr"])


def requests(variant, outcome, rate):
    scope = {"namespace": "baton", "job": "baton-metrics", "route": "/v1/chat/completions", "profile": "fast"}
    labels = ",".join(f'{name}="{value}"' for name, value in (scope | {"variant": variant, "outcome": outcome}).items())
    return {"series": f"ray_baton_requests_total{{{labels}}}", "values": f"0+{rate}x{MINUTES}"}


def by_hand():
    (good, bad), (other_good, other_bad) = ([count * MINUTES for count in pair] for pair in (CANARY, STABLE))
    share, other = bad / (good + bad), other_bad / (other_good + other_bad)
    pooled = (bad + other_bad) / (good + bad + other_good + other_bad)
    return (share - other) / math.sqrt(pooled * (1 - pooled) * (1 / (good + bad) + 1 / (other_good + other_bad)))


def test_errors_against_the_others(tmp_path):
    series = [
        requests(name, outcome, rate)
        for name, (good, bad) in (("stable", STABLE), ("canary", CANARY))
        for outcome, rate in (("answered", good), ("failed", bad))
    ]
    samples = [
        {"labels": f'{{profile="fast",variant="{variant}"}}', "value": round(sign * by_hand(), 1)}
        for variant, sign in (("canary", 1), ("stable", -1))
    ]
    asked = {"expr": f"round({expression('Errors against the others')}, 0.1)", "eval_time": f"{MINUTES}m"}
    case = {"interval": "1m", "input_series": series, "promql_expr_test": [asked | {"exp_samples": samples}]}
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump({"fuzzy_compare": True, "tests": [case]}))
    promtool("test", "rules", str(path))
