"""The gates of a rollout, evaluated by promtool: each built-in query gives the number that it promises."""

import pytest
import yaml

from app.config.rollout import Gate
from app.ops.rollout.signals import BUDGET, Scope, count_query, query
from tests.dashboards.test_rules import promtool

RELEASE = 'namespace="ns",job="baton-metrics"'
SCOPE = Scope("chat", "new", 300)


def series(name, values, **labels):
    labels = {"namespace": "ns", "job": "baton-metrics", "profile": "chat", "variant": "new", **labels}
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"ray_baton_{name}{{{inside}}}", "values": f"0+{values}x30"}


#: Per half minute. Another variant, another release, shadows and requests without a profile do not count.
SERIES = [
    series("requests_total", 8, outcome="answered"),
    series("requests_total", 1, outcome="failed"),
    series("requests_total", 1, outcome="shed"),
    series("requests_total", 5, outcome="blocked"),
    series("requests_total", 30, outcome="answered", variant="old"),
    series("requests_total", 99, outcome="failed", namespace="other"),
    series("requests_total", 99, outcome="answered", profile="", variant=""),
    *(series("request_milliseconds_bucket", n, outcome="answered", le=le) for le, n in (("100.0", 90), ("200.0", 100))),
    series("request_milliseconds_bucket", 100, outcome="answered", le="+Inf"),
    series("request_milliseconds_bucket", 500, outcome="failed", le="100.0"),
    series("request_milliseconds_bucket", 500, outcome="failed", le="+Inf"),
    *(
        series("time_to_first_token_milliseconds_bucket", n, model=model, le=le)
        for model in ("a", "b")
        for le, n in (("50.0", 5), ("100.0", 10), ("+Inf", 10))
    ),
    series("grounding_bucket", 2, le="0.5"),
    series("grounding_bucket", 10, le="+Inf"),
    series("grounding_count", 10),
    series("grounding_bucket", 99, le="0.5", variant="new:shadow"),
    series("grounding_count", 99, variant="new:shadow"),
]
#: Of the whole release: the variant's two among those of all variants.
BURN = 2 / (10 + 30) / BUDGET
EXPECTED = {
    "errors": 0.2,
    "latencyP95": 150,
    "latencyP99": 190,
    "timeToFirstTokenP95": 95,
    "grounded": 0.8,
    "sloBurn": BURN,
}


def evaluated(tmp_path, found, wanted):
    """Let promtool compare queries with numbers: query → number, or None where there is to be nothing."""
    tests = [
        # promtool compares exactly: rounded, and one row without labels.
        {
            "expr": f"round({text}, 0.001)",
            "eval_time": "10m",
            "exp_samples": [] if number is None else [{"labels": "{}", "value": round(number, 3)}],
        }
        for text, number in wanted.items()
    ]
    path = tmp_path / "gates.yaml"
    whole = {"interval": "30s", "input_series": found, "promql_expr_test": tests}
    path.write_text(yaml.safe_dump({"evaluation_interval": "30s", "tests": [whole]}))
    promtool("test", "rules", str(path))


def test_each_gate_gives_its_number(tmp_path):
    wanted = {query(Gate(gate=name, bound=1), SCOPE, RELEASE): number for name, number in EXPECTED.items()}
    evaluated(tmp_path, SERIES, wanted)


def test_each_gate_counts_what_its_number_is_taken_of(tmp_path):
    """Of a query of one's own all requests; without them those that were blocked, or the answers that were judged."""
    own = Gate(name="own", query="vector(1)", comparison="atMost", bound=1)
    counted = {"errors": 100, "grounded": 100, "latencyP95": 1000}
    wanted = {count_query(Gate(gate=name, bound=1), SCOPE, RELEASE): number for name, number in counted.items()}
    answers = series("request_milliseconds_count", 100, outcome="answered")
    evaluated(tmp_path, [*SERIES, answers], wanted | {count_query(own, SCOPE, RELEASE): 150})


def test_a_canary_that_never_failed_has_no_errors(tmp_path):
    evaluated(tmp_path, SERIES[:1], {query(Gate(gate="errors", bound=1), SCOPE, RELEASE): 0})


@pytest.mark.parametrize("name", EXPECTED)
def test_a_canary_without_requests_has_no_number(tmp_path, name):
    evaluated(tmp_path, [], {query(Gate(gate=name, bound=1), SCOPE, RELEASE): None})
