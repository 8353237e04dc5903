"""Sides asked in turns, and the figures of what they showed."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np

from tests.bench.overhead_site import Load, Side, Site

_STAGES = re.compile(rb'"stages":(\{.*?\})')
#: Seconds of first tokens by side.
Firsts = Mapping[str, list[float]]
#: Loads by number of streams, then by side.
Loads = Mapping[int, Mapping[str, list[Load]]]


def first_tokens(found: Site, sides: Sequence[Side], rounds: int, tokens: int) -> dict[str, list[float]]:
    """Ask each side once per round with one client; returns times to first token. The first two rounds do not count."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 2):
        for side in _order(sides, number):
            load = found.ask(side, 1, tokens)
            if number >= 2:
                seconds[side.name].append(load.answers[0].first)
    return seconds


def loads_in_turns(
    found: Site, sides: Sequence[Side], streams: int, tokens: int, rounds: int, pause: float = 0.0
) -> dict[str, list[Load]]:
    """Put the same load on each side once per round."""
    loads: dict[str, list[Load]] = defaultdict(list)
    for number in range(rounds):
        for side in _order(sides, number):
            loads[side.name].append(found.ask(side, streams, tokens, pause=pause))
    return loads


def _order(sides: Sequence[Side], number: int) -> Iterable[Side]:
    turn = number % len(sides)
    return [*sides[turn:], *sides[:turn]]


def stage_shares(found: Site, side: Side, rounds: int, tokens: int) -> dict[str, float]:
    """Ask Baton; return the median milliseconds of each stage, of the gateway's and of the client's first token."""
    answers = []
    for _ in range(rounds + 1):
        answer = found.ask(side, 1, tokens, keep=True).answers[0]
        stages: dict[str, float] = json.loads(_STAGES.findall(answer.body)[-1])
        answers.append(stages | {"first token at the client": answer.first * 1000})
    names = dict.fromkeys(name for one in answers for name in one)
    return {name: median(one.get(name, 0.0) for one in answers[1:]) for name in names}


def middle(values: Iterable[float]) -> float:
    """Return the median, rounded for a table."""
    return round(median(values), 1)


def milliseconds(seconds: Sequence[float], share: float) -> float:
    """Return a percentile in milliseconds, rounded for a table."""
    return round(float(np.percentile(seconds, share)) * 1000, 1)
