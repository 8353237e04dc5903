"""The harness of the benches: ratios, bounds, and pages that say what was measured."""

import numpy as np
import pytest

from tests.bench.__main__ import check
from tests.bench.measure import Result, interleave, percentiles, ratio
from tests.bench.report import PAGE, README, ROOT, page_lines, picture_name, read_results, with_section

RESULTS = read_results(ROOT / "tests" / "bench" / "results")


def test_a_ratio_lies_in_its_interval_and_the_interval_narrows():
    drawn = np.random.default_rng(1)
    few, many = (ratio(drawn.normal(3, 0.3, count), drawn.normal(1, 0.1, count)) for count in (10, 1000))
    assert few.low <= few.value <= few.high
    assert many.low < 3 < many.high
    assert many.high - many.low < few.high - few.low


def test_every_contestant_runs_in_every_round_and_may_time_itself():
    calls = []
    contestants = {"own": lambda: calls.append("own") or 0.5, "other": lambda: calls.append("other")}
    seconds = interleave(contestants, rounds=4, warmup=1)
    assert seconds["own"] == [0.5] * 4
    assert len(seconds["other"]) == 4
    assert calls.count("own") == calls.count("other") == 5
    assert percentiles([0.001, 0.003])["p50"] == pytest.approx(2)


def test_a_ratio_out_of_bounds_or_never_measured_fails(capsys):
    bounds = {"good": (1, 3), "low": (1, 3), "gone": (1, 3)}
    assert check("handoff", {"good": 2.0, "low": 0.5}, bounds) == 2
    assert "missing" in capsys.readouterr().out


def test_a_missed_goal_needs_its_reason():
    with pytest.raises(ValueError, match="needs its reason"):
        Result("x", "X").claim("transit", "3 memcpys", "5 memcpys", met=False)


def test_the_pages_say_what_the_results_say():
    assert RESULTS
    assert PAGE.read_text(encoding="utf-8") == "\n".join(page_lines(RESULTS)) + "\n"
    text = README.read_text(encoding="utf-8")
    assert with_section(text, RESULTS) == text
    pictures = [picture_name(result, number) for result in RESULTS for number in range(len(result["plots"]))]
    assert sorted(path.name for path in (ROOT / "docs" / "bench").glob("*.png")) == sorted(pictures)
