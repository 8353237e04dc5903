"""vLLM's gauges hold while an engine is idle: what it set last is set again and again, without Ray or vLLM."""

import copy
import time
from types import SimpleNamespace

import pytest

from app.deployments.engine_gauges import Held, lasting


class Gauge:
    """As vLLM's RayGaugeWrapper: labelled copies share what they write to."""

    def __init__(self, name):
        self.metric = SimpleNamespace(info={"name": name}, written=[])
        self._tags = {}

    def labels(self, **tags):
        clone = copy.copy(self)
        clone._tags = tags
        return clone

    def set(self, value):
        self.metric.written.append((tuple(self._tags.values()), value))

    def set_to_current_time(self):
        self.set(time.time())


@pytest.fixture
def kind():
    return lasting(Gauge, Held(0.01))


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_last_value_of_each_row_is_set_again(kind):
    running, waiting = kind("running"), kind("waiting")
    one, two = running.labels(model="one"), running.labels(model="two")
    for gauge, value in ((one, 3), (two, 5), (one, 0), (waiting, 7)):
        gauge.set(value)
    assert running.metric.written[:3] == [(("one",), 3), (("two",), 5), (("one",), 0)]
    until(lambda: len(running.metric.written) >= 9 and len(waiting.metric.written) >= 3)
    assert set(running.metric.written[3:]) == {(("one",), 0), (("two",), 5)}
    assert set(waiting.metric.written) == {((), 7)}


def test_a_moment_is_not_held(kind):
    at_work, other = kind("lora"), kind("other")
    at_work.labels(adapters="a,b").set_to_current_time()
    other.set(1)
    until(lambda: len(other.metric.written) > 3)
    assert len(at_work.metric.written) == 1
