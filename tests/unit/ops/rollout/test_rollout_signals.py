"""Where the numbers come from: PromQL, a Prometheus over HTTP, a metrics page."""

import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import promql_parser
import pytest

from app.config.rollout import Gate, Gauge, Judgement
from app.ops.rollout.prometheus import Prometheus
from app.ops.rollout.scrape import Scrape
from app.ops.rollout.signals import BUDGET, HURT, Scope, Unreachable, count_query, query
from dashboards.promql import COUNTED
from dashboards.promql import HURT as HURT_QUERY
from dashboards.slos import SLOS
from tests.unit.ops.rollout.sites import PrometheusSite
from tests.unit.ops.serving import Answers, serving

SCOPE = Scope("chat", "new", 300)
RELEASE = 'namespace="ns",job="baton-metrics"'
GAUGES = Gauge.__args__
ERRORS = Gate(gate="errors", bound=1)


@pytest.mark.parametrize("gauge", GAUGES)
@pytest.mark.parametrize("selector", ["", RELEASE])
def test_built_in_queries_are_promql(gauge, selector):
    text = query(Gate(gate=gauge, bound=1), SCOPE, selector)
    promql_parser.parse(text)
    assert "[300s]" in text
    assert selector in text
    assert ('variant="new"' in text) == (gauge != "sloBurn")


OWN = 'profile="chat",variant="new"'
JUDGED = 'outcome!~"blocked|refused|cancelled|own_deadline"'


@pytest.mark.parametrize(
    ("gauge", "series"),
    [
        ("errors", f"ray_baton_requests_total{{{OWN},{JUDGED}}}"),
        ("sloBurn", f'ray_baton_requests_total{{profile!="",{JUDGED}}}'),
        ("latencyP95", f'ray_baton_request_milliseconds_count{{{OWN},outcome="answered"}}'),
        ("latencyP99", f'ray_baton_request_milliseconds_count{{{OWN},outcome="answered"}}'),
        ("timeToFirstTokenP95", f"ray_baton_time_to_first_token_milliseconds_count{{{OWN}}}"),
        ("grounded", f"ray_baton_grounding_count{{{OWN}}}"),
    ],
)
def test_what_a_number_is_taken_of_is_promql(gauge, series):
    gate = Gate(gate=gauge, bound=1)
    promql_parser.parse(count_query(gate, SCOPE, RELEASE))
    assert count_query(gate, SCOPE, "") == f"sum(increase({series}[300s]))"


def test_a_query_of_ones_own_is_taken_of_all_requests():
    own = Judgement(name="own", query="up", bound=1)
    assert count_query(own, SCOPE, "") == f"sum(increase(ray_baton_requests_total{{{OWN}}}[300s]))"


def test_a_query_of_ones_own_has_its_places_filled_in():
    own = Judgement(
        name="own", query='sum(rate(x{variant="{variant}",profile="{profile}",{selector}}[{window}]))', bound=1
    )
    found = query(own, SCOPE, RELEASE)
    assert found == f'sum(rate(x{{variant="new",profile="chat",{RELEASE}}}[300s]))'
    promql_parser.parse(found)


def test_the_budget_is_that_of_the_objective():
    (availability,) = [slo for slo in SLOS if slo.name == "availability"]
    assert pytest.approx(1 - availability.objective) == BUDGET
    assert f'outcome=~"{"|".join(HURT)}"' == HURT_QUERY
    assert COUNTED in query(Gate(gate="errors", bound=1), SCOPE, "")


# --- a Prometheus -----------------------------------------------------------------------------------------------------


def asked(answer, token=None):
    site = PrometheusSite(lambda text: answer)
    with serving(site.server()) as server:
        prometheus = Prometheus(f"http://127.0.0.1:{server.server_port}/", RELEASE, token)
        try:
            return prometheus.measure(Gate(gate="errors", bound=1), SCOPE), site
        finally:
            prometheus.close()


def body(kind, result):
    return {"status": "success", "data": {"resultType": kind, "result": result}}


@pytest.mark.parametrize(
    ("answer", "value"),
    [(0.25, 0.25), ([], None), ("NaN", None), ("+Inf", float("inf")), (body("scalar", [0, "3"]), 3.0)],
)
def test_a_number_is_read(answer, value):
    assert asked(answer)[0] == value


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([1, 2], "gives 2 numbers, not one"),
        (body("matrix", []), "gives a matrix, not one number"),
        ({"status": "error", "error": "parse error at char 3"}, "refuses the query: parse error at char 3"),
        (b"<html>Bad gateway", "does not answer like a Prometheus \\(status 502"),
        ({"status": "success", "data": {}}, "does not answer like a Prometheus"),
    ],
)
def test_what_is_no_number_is_said(answer, told):
    with pytest.raises(Unreachable, match=told):
        asked(answer)


def test_the_query_names_the_release_and_the_token_goes_along():
    _, site = asked(0, "secret")
    assert site.queries[0][1] == "Bearer secret"
    assert RELEASE in site.queries[0][0]


def test_a_prometheus_that_is_not_there_is_unreachable():
    prometheus = Prometheus("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="does not answer"):
        prometheus.basis(ERRORS, SCOPE)
    prometheus.close()


# --- a metrics page ---------------------------------------------------------------------------------------------------

PAGE = """\
# TYPE process_start_time_seconds gauge
process_start_time_seconds 5
# TYPE ray_baton_requests_total counter
ray_baton_requests_total{{outcome="answered",profile="chat",variant="new"}} {good}
ray_baton_requests_total{{outcome="failed",profile="chat",variant="new"}} {bad}
ray_baton_requests_total{{outcome="blocked",profile="chat",variant="new"}} {bad}
ray_baton_requests_total{{outcome="failed",profile="chat",variant="old"}} {bad}
ray_baton_requests_total{{outcome="answered",profile="",variant=""}} {good}
# TYPE ray_baton_request_milliseconds histogram
ray_baton_request_milliseconds_bucket{{outcome="answered",profile="chat",variant="new",le="100.0"}} {good}
ray_baton_request_milliseconds_bucket{{outcome="answered",profile="chat",variant="new",le="200.0"}} {all}
ray_baton_request_milliseconds_bucket{{outcome="answered",profile="chat",variant="new",le="+Inf"}} {all}
ray_baton_request_milliseconds_count{{outcome="answered",profile="chat",variant="new"}} {good}
# TYPE ray_baton_grounding histogram
ray_baton_grounding_bucket{{profile="chat",variant="new",le="0.5"}} {bad}
ray_baton_grounding_bucket{{profile="chat",variant="new",le="+Inf"}} {all}
ray_baton_grounding_count{{profile="chat",variant="new"}} {all}
"""


class Page:
    """A metrics page whose counters grow as set."""

    def __init__(self):
        self.good, self.bad = 100, 10

    def server(self):
        page = self

        class Handler(Answers, BaseHTTPRequestHandler):
            def do_GET(self):
                text = PAGE.format(good=page.good, bad=page.bad, all=page.good + page.bad)
                self.reply(text.encode())

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setattr("app.ops.rollout.scrape._FRESH_SECONDS", 0)
    found = Page()
    with serving(found.server()) as server:
        found.url = f"http://127.0.0.1:{server.server_port}/metrics"
        yield found


def test_what_happened_before_the_first_look_does_not_count(page):
    scrape = Scrape(page.url)
    assert scrape.basis(ERRORS, SCOPE) == 0
    assert scrape.measure(Gate(gate="errors", bound=1), SCOPE) is None
    page.good, page.bad = 190, 20
    counts = {gauge: scrape.basis(Gate(gate=gauge, bound=1), SCOPE) for gauge in GAUGES}
    assert (counts["errors"], counts["sloBurn"], counts["latencyP95"], counts["grounded"]) == (100, 110, 90, 100)
    found = {gauge: scrape.measure(Gate(gate=gauge, bound=1), SCOPE) for gauge in GAUGES}
    assert found["errors"] == pytest.approx(0.1)
    assert found["sloBurn"] == pytest.approx(20 / 110 / BUDGET)
    assert found["grounded"] == pytest.approx(0.9)
    assert found["latencyP95"] == pytest.approx(150)
    assert found["timeToFirstTokenP95"] != found["timeToFirstTokenP95"], "no series, no number"
    scrape.close()


def test_a_window_begins_with_the_first_reading_of_its_step(page):
    scrape = Scrape(page.url)
    assert scrape.basis(ERRORS, SCOPE) == 0
    page.good += 50
    step = replace(SCOPE, since=time.time())
    assert scrape.basis(ERRORS, step) == 0, "what came between the readings may have come before the step"
    page.good += 7
    assert scrape.basis(ERRORS, step) == 7
    assert scrape.basis(ERRORS, SCOPE) == 57
    scrape.close()


def test_a_dry_run_looks_at_all_since_the_start(page):
    scrape = Scrape(page.url, since_start=True)
    assert scrape.basis(ERRORS, SCOPE) == 110
    scrape.close()


def test_a_page_answers_no_query_and_may_be_away(page):
    scrape = Scrape(page.url)
    with pytest.raises(Unreachable, match="own is a query, and there is no Prometheus"):
        scrape.measure(Gate(name="own", query="up", bound=1), SCOPE)
    scrape.close()
    away = Scrape("http://127.0.0.1:1/metrics")
    with pytest.raises(Unreachable, match="does not answer"):
        away.basis(ERRORS, SCOPE)
    away.close()
