"""Who gets which variant: in the right shares, always the same one, and few move when weights change."""

import subprocess
import sys
from collections import Counter

import pytest

from app.routing.choice import chosen, drawn, sampled

CALLERS = [f"caller-{number}" for number in range(20_000)]


def spread(weights, salt="fast"):
    return {caller: chosen(salt, caller, weights) for caller in CALLERS}


def shares(weights):
    counted = Counter(spread(weights).values())
    return {name: count / len(CALLERS) for name, count in counted.items()}


@pytest.mark.parametrize(
    "weights",
    [{"stable": 90, "canary": 10}, {"a": 1, "b": 1, "c": 2}, {"a": 0.995, "b": 0.005}, {"one": 3}],
)
def test_each_variant_gets_its_share_of_the_weights(weights):
    whole, found = sum(weights.values()), shares(weights)
    for name, weight in weights.items():
        assert found[name] == pytest.approx(weight / whole, abs=0.012)


def test_a_weight_of_zero_is_never_chosen():
    assert set(spread({"stable": 1, "canary": 0}).values()) == {"stable"}


def test_neither_order_nor_scale_of_the_weights_matters():
    assert spread({"a": 1, "b": 3}) == spread({"b": 75, "a": 25})


def test_a_growing_canary_keeps_those_it_has_and_takes_no_more_than_it_grew_by():
    before, after = spread({"stable": 90, "canary": 10}), spread({"stable": 70, "canary": 30})
    moved = [caller for caller in CALLERS if before[caller] != after[caller]]
    assert all(after[caller] == "canary" for caller in moved)
    assert len(moved) / len(CALLERS) == pytest.approx(0.2, abs=0.012)


def test_a_third_variant_takes_from_both_and_moves_nobody_else():
    before, after = spread({"a": 1, "b": 1}), spread({"a": 1, "b": 1, "c": 1})
    moved = {caller for caller in CALLERS if before[caller] != after[caller]}
    assert {after[caller] for caller in moved} == {"c"}
    assert Counter(before[caller] for caller in moved)["a"] / len(moved) == pytest.approx(0.5, abs=0.03)


def test_two_profiles_do_not_draw_the_same_callers():
    weights = {"a": 1, "b": 1}
    one, two = spread(weights, "fast"), spread(weights, "creative")
    assert sum(one[caller] == two[caller] for caller in CALLERS) / len(CALLERS) == pytest.approx(0.5, abs=0.02)


def test_the_same_caller_gets_the_same_variant_in_every_process():
    program = (
        "from app.routing.choice import chosen; print([chosen('fast', str(n), {'a': 1, 'b': 1}) for n in range(99)])"
    )
    told = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert told == {f"{[chosen('fast', str(number), {'a': 1, 'b': 1}) for number in range(99)]}\n"}


def test_odd_names_are_drawn_for_too():
    for name in ("", "\0", "\ud800", "x" * 10_000):
        assert 0 < drawn("fast", name) < 1


def test_a_sample_has_the_size_of_its_share():
    assert sum(sampled("shadow", caller, 0.25) for caller in CALLERS) / len(CALLERS) == pytest.approx(0.25, abs=0.012)
    assert all(sampled("shadow", caller, 1.0) for caller in CALLERS)
