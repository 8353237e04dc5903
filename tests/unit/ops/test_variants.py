"""The report on variants: what it counts, and how sure it is."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from app.ops.variants.__main__ import main
from app.ops.variants.estimates import Estimate, difference, is_real, quantile, share
from tests.unit.ops.serving import Answers, serving

OUTCOMES = "ray_baton_variant_outcomes_total"
FIRST, WHOLE = "ray_baton_time_to_first_token_milliseconds", "ray_baton_request_milliseconds"


def counter(variant, way="weight", **ended):
    return {(OUTCOMES, f'variant="{variant}",way="{way}",outcome="{name}"'): count for name, count in ended.items()}


def histogram(name, variant, *counts, bounds=(100, 200, 500), **labels):
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    found, total = {}, 0
    for bound, count in zip((*bounds, "+Inf"), (*counts, 0), strict=True):
        total += count
        found[(f"{name}_bucket", f'variant="{variant}",le="{bound}"{more}')] = total
    return found


SERIES = {
    **counter("stable", answered=900, failed=10, blocked=20, filtered=10, cancelled=7, refused=3),
    **counter("canary", answered=80, failed=20, blocked=2),
    **counter("canary", "name", answered=10),
    **counter("canary", "shadow", answered=40, dropped=5),
    **histogram(FIRST, "stable", 800, 100, 10),
    **histogram(FIRST, "canary", 10, 70, 10),
    **histogram(FIRST, "canary~shadow", 20, 20, 0),
    **histogram(WHOLE, "stable", 100, 700, 100, outcome="answered"),
    **histogram(WHOLE, "canary", 10, 70, 10, outcome="answered"),
    **histogram(WHOLE, "canary", 0, 0, 20, outcome="failed"),
    **histogram("ray_baton_grounding", "stable", 90, 810, bounds=(0.5, 1)),
    **histogram("ray_baton_grounding", "canary", 60, 30, bounds=(0.5, 1)),
}


def page(profile="fast"):
    lines = []
    for name in sorted({name for name, _ in SERIES}):
        lines.append(f"# TYPE {name.removesuffix('_bucket')} {'histogram' if 'bucket' in name else 'counter'}")
        for (own, labels), value in SERIES.items():
            if own == name:
                lines.append(f'{name}{{profile="{profile}",{labels}}} {value}')
    return "\n".join([*lines, ""])


def prometheus(query):
    """Answer as Prometheus does: rows of the metric that the query names, with the profile's label."""
    result = []
    for (name, labels), value in SERIES.items():
        if f"({name}{{" in query:
            pairs = dict(pair.replace('"', "").split("=") for pair in labels.split(","))
            result.append({"metric": {"profile": "fast"} | pairs, "value": [0, str(value)]})
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@pytest.fixture
def node():
    """A metrics page and, beside it, a Prometheus; ``queries`` holds what that was asked."""

    class Handler(Answers, BaseHTTPRequestHandler):
        def do_GET(self):
            asked = urlsplit(self.path)
            if asked.path == "/metrics":
                self.reply(page().encode())
            elif asked.path == "/api/v1/query":
                (query,) = parse_qs(asked.query)["query"]
                self.server.queries.append(query)
                self.reply(json.dumps(prometheus(query)).encode())
            else:
                self.reply(b"hello")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.queries = []
    with serving(server) as running:
        running.url = f"http://127.0.0.1:{running.server_address[1]}"
        yield running


def report(capsys, url, *more, profile="fast"):
    code = main(["report", "--profile", profile, "--url", url, *more])
    out = capsys.readouterr()
    return code, out.out, out.err


def cells(text, name, table=0):
    lines = [line for line in text.splitlines() if name in line]
    return [part.strip() for part in lines[table].split("│")[2:-1]]


def test_the_report_of_a_metrics_page(node, capsys):
    code, out, _ = report(capsys, f"{node.url}/metrics")
    assert code == 0
    assert cells(out, "answers") == ["910", "90", "40"]
    assert cells(out, "errors") == ["1.1 (0.6 to 2.0)", "18.2 (12.1 to 26.4)", "0.0 (0.0 to 8.8)"]
    assert cells(out, "blocked")[0].startswith("3.2 (")
    assert cells(out, "grounded")[:2] == ["90.0 (87.9 to 91.8)", "33.3 (24.5 to 43.6)"]
    assert cells(out, "grounded")[2] == "–"
    assert cells(out, "answer p50")[2] == "–", "nobody waits for a shadow"
    assert "stable" in out.splitlines()[2]


def test_differences_that_are_more_than_chance_are_marked(node, capsys):
    _, out, _ = report(capsys, f"{node.url}/metrics")
    errors, blocked = cells(out, "errors", 1)[0], cells(out, "blocked", 1)[0]
    assert errors.startswith("* 17.1 (")
    assert blocked.startswith("-1.4 (")
    assert cells(out, "grounded", 1)[0].startswith("* -56.7 (")
    assert cells(out, "first token p50", 1)[0].startswith("* ")


def test_a_prometheus_says_the_same(node, capsys):
    by_page, by_query = report(capsys, f"{node.url}/metrics"), report(capsys, node.url, "--period", "6h")
    assert by_page[1] == by_query[1]
    assert all('profile="fast"' in query and "[6h]" in query for query in node.queries)


def test_another_variant_to_compare_with(node, capsys):
    code, out, _ = report(capsys, node.url, "--against", "canary")
    assert code == 0
    assert "Difference to canary" in out
    assert cells(out, "errors", 1)[0].startswith("* -17.1")


@pytest.mark.parametrize(
    ("path", "more", "profile", "told"),
    [
        ("/metrics", (), "slow", "No variant of profile 'slow' has answered yet"),
        ("/metrics", ("--against", "nope"), "fast", "there are stable, canary, canary~shadow"),
        ("", ("--period", "soon"), "fast", "like 30m"),
        ("/nowhere", (), "fast", "does not speak as Prometheus does"),
        ("", ("--url", "http://127.0.0.1:9/metrics"), "fast", "name one Prometheus"),
    ],
)
def test_what_cannot_be_compared_is_told(node, capsys, path, more, profile, told):
    code, out, err = report(capsys, node.url + path, *more, profile=profile)
    assert (code, out) == (1, "")
    assert err.startswith("baton: ")
    assert told in err


def test_nothing_there(capsys):
    code, _, err = report(capsys, "http://127.0.0.1:9/metrics")
    assert code == 1
    assert "Nothing answers at" in err


@pytest.mark.parametrize("wrong", [("--confidence", "95"), ("--confidence", "much"), ("--profile", 'a"b')])
def test_wrong_options_are_refused(capsys, wrong):
    with pytest.raises(SystemExit):
        main(["report", "--profile", "fast", *wrong])
    assert "is no" in capsys.readouterr().err


def test_wilsons_interval_and_newcombes_difference_are_those_of_the_books():
    """Newcombe 1998, method 10: 56 of 70 against 48 of 80 differ by 0.2, from 0.0524 to 0.3339."""
    one, other = share(56, 70, 0.95), share(48, 80, 0.95)
    assert (one.low, one.high) == (pytest.approx(0.6918, abs=1e-4), pytest.approx(0.8770, abs=1e-4))
    found = difference(one, other)
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))
    assert is_real(found)
    assert not is_real(Estimate(0.1, -0.1, 0.3))


INF = float("inf")


def test_a_quantile_lies_in_its_interval_which_more_values_narrow():
    few = quantile(0.5, [(50, 1), (100, 5), (150, 9), (200, 10), (INF, 10)], 0.95)
    many = quantile(0.5, [(50, 100), (100, 500), (150, 900), (200, 1000), (INF, 1000)], 0.95)
    assert few.value == many.value == 100
    assert (few.low, few.high) == (50, 150)
    assert (many.low, many.high) == (50, 150)
    fewer = quantile(0.5, [(50, 1), (100, 2), (150, 3), (200, 4), (INF, 4)], 0.95)
    assert (fewer.low, fewer.high) == (0, 200)
    assert quantile(0.5, [], 0.95) is None
    assert share(0, 0, 0.95) is None
    assert difference(None, many) is None


@pytest.mark.parametrize("count", [1, 10, 1_000, 1_000_000])
@pytest.mark.parametrize("wanted", [0.05, 0.5, 0.95])
def test_no_interval_is_finer_than_the_bucket_of_its_quantile(count, wanted):
    edges = (100, 200, 400, 800)
    buckets = [(edge, count * (place + 1)) for place, edge in enumerate(edges)] + [(INF, count * len(edges))]
    found = quantile(wanted, buckets, 0.95)
    low, high = next((low, high) for low, high in zip((0, *edges), edges, strict=False) if found.value <= high)
    assert found.low <= low
    assert found.high >= high


def test_beyond_the_last_bound_nothing_is_known():
    found = quantile(0.95, [(100, 1), (INF, 400)], 0.95)
    assert (found.value, found.low, found.high) == (100, 100, INF)
    both = difference(found, quantile(0.5, [(100, 400), (INF, 400)], 0.95))
    assert (both.low, both.high) == (0, INF)
    assert is_real(both)


def test_a_difference_within_a_bucket_is_none_however_many_values_there_are():
    low = quantile(0.5, [(100, 0), (200, 1_000_000), (INF, 1_010_000)], 0.95)
    high = quantile(0.5, [(100, 490_000), (200, 1_000_000), (INF, 1_000_000)], 0.95)
    found = difference(low, high)
    assert found.value > 40
    assert (found.low, found.high) == (-100, 100)
    assert not is_real(found)
    next_one = quantile(0.5, [(100, 1_000_000), (INF, 1_000_000)], 0.95)
    assert is_real(difference(low, next_one))
