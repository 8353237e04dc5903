"""Every query of boards and rules: it parses, what it names was seen in a real scrape, and it means what it says."""

import re

import promql_parser
import pytest

from app.metrics import TABLE
from tests.dashboards import names

EXPRESSIONS = names.expressions()
TYPES = names.types()
RULES = names.rules()
#: Metrics of ours that no board shows and no rule reads, with the reason.
WAIVED: dict[str, str] = {}


def _recorded():
    """Return recorded name → its labels."""
    found = {}
    for rule in RULES:
        if "record" in rule:
            by = re.match(r"\(*(?:histogram_quantile\([^,]+, )?sum by \(([^)]*)\)", rule["expr"])[1]
            labels = {label.strip() for label in by.split(",")} - {"le"}
            found.setdefault(rule["record"], set()).update(labels | set(rule.get("labels", {})))
    return found


KNOWN = names.scraped() | names.elsewhere() | _recorded()


def _nodes(node):
    yield node
    for part in ("expr", "lhs", "rhs"):
        child = getattr(node, part, None)
        if child is not None:
            yield from _nodes(child)
    for argument in getattr(node, "args", None) or ():
        yield from _nodes(argument)


def _metrics_of(selector):
    """Return the names that a selector reads: its own, or those of a pattern on the name."""
    if selector.name:
        return [selector.name]
    (pattern,) = [matcher.value for matcher in selector.matchers.matchers if matcher.name == "__name__"]
    return pattern.split("|")


def _parsed():
    return [(place, promql_parser.parse(expression)) for place, expression in EXPRESSIONS.items()]


PARSED = _parsed()
SELECTORS = [(place, selector) for place, node in PARSED for selector in names.selectors(node)]


def test_there_is_something_to_check():
    assert len(SELECTORS) > 100
    assert len(names.scraped()) > 150


def test_every_metric_was_scraped_or_is_listed_with_its_source():
    unknown = {(place, name) for place, found in SELECTORS for name in _metrics_of(found) if name not in KNOWN}
    assert unknown == set()


def test_what_is_listed_is_not_in_the_scrape_and_ours_is_in_the_table():
    assert names.elsewhere().keys() & names.scraped().keys() == set()
    for name, labels in names.elsewhere().items():
        if name.startswith("ray_baton_"):
            assert set(TABLE[name.removeprefix("ray_")].labels) == labels


def test_every_label_that_a_query_selects_by_exists():
    wrong = [
        (place, name, matcher.name)
        for place, found in SELECTORS
        for name in _metrics_of(found)
        for matcher in found.matchers.matchers
        if matcher.name not in KNOWN[name] | names.TARGET_LABELS | {"__name__"}
    ]
    assert wrong == []


def test_every_label_that_a_query_groups_by_exists():
    wrong = []
    for place, root in PARSED:
        for node in _nodes(root):
            if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
                read = [name for found in names.selectors(node.expr) for name in _metrics_of(found)]
                known = set().union(names.TARGET_LABELS, {"version"}, *(KNOWN[name] for name in read))
                wrong += [(place, label) for label in node.modifier.labels if label not in known]
    assert wrong == []


def test_a_bucket_is_named_as_it_is_stored():
    page = names.SCRAPE.read_text()
    for place, found in SELECTORS:
        for matcher in found.matchers.matchers:
            if matcher.name == "le":
                assert re.search(rf'^{found.name}{{[^}}]*le="{re.escape(matcher.value)}"', page, re.M), place


def _kind(name):
    return TYPES.get(name) or TYPES.get(re.sub(r"_(total|bucket|sum|count)$", "", name))


def test_rates_are_of_counters_and_slopes_of_gauges():
    for place, root in PARSED:
        for node in _nodes(root):
            if isinstance(node, promql_parser.Call):
                read = [name for found in names.selectors(node) for name in _metrics_of(found)]
                if node.func.name in {"rate", "irate", "increase"}:
                    assert all(_kind(name) != "gauge" for name in read), place
                if node.func.name in {"deriv", "delta"}:
                    assert all(_kind(name) in {"gauge", None} for name in read), place


def test_quantiles_are_over_rates_summed_by_bucket():
    quantiles = [
        (place, node)
        for place, root in PARSED
        for node in _nodes(root)
        if isinstance(node, promql_parser.Call) and node.func.name == "histogram_quantile"
    ]
    assert quantiles
    for place, node in quantiles:
        summed = node.args[1]
        assert isinstance(summed, promql_parser.AggregateExpr), place
        assert "le" in summed.modifier.labels, place
        assert summed.expr.func.name == "rate", place


def test_shares_are_never_summed():
    for place, expression in EXPRESSIONS.items():
        assert not re.search(r"sum[^(]*(?:by[^(]*\([^)]*\)\s*)?\(\s*\w+_(perc|percent|ratio)\b", expression), place


def test_no_sum_of_a_histogram_is_read():
    """Ray keeps the middle of a bucket for each value in it: 3 between 1 and 2,000 counts as 1,000.5."""
    read = {name for _, found in SELECTORS for name in _metrics_of(found)}
    assert [name for name in read if name.endswith("_sum")] == []


def test_boards_take_rates_over_grafanas_own_window():
    for uid, board in names.boards().items():
        for panel in names.panels(board):
            for target in panel["targets"]:
                windows = set(re.findall(r"\[([^\]]+)\]", target["expr"]))
                # What the routing board compares, and what is largest, needs all that the board shows.
                whole = uid == "baton-routing" or "topk(" in target["expr"]
                assert windows <= {"$__rate_interval"} | ({"$__range"} if whole else set())


def test_what_is_largest_is_judged_once_for_all_that_a_board_shows():
    """``topk`` picks anew at every point, so that over a range more lines appear than it says."""
    picked = [expression for place, expression in EXPRESSIONS.items() if "topk(" in expression]
    assert picked
    for expression in picked:
        assert re.search(r" and on \(\w+\) topk\(\d+, [^@]+ @ end\(\)\)+$", expression), expression


@pytest.mark.parametrize("name", TABLE)
def test_every_metric_of_ours_is_shown_or_waived(name):
    read = {found for _, selector in SELECTORS for found in _metrics_of(selector)}
    shown = {f"ray_{name}", f"ray_{name}_bucket", f"ray_{name}_count"} & read
    assert bool(shown) != (name in WAIVED)
