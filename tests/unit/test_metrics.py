"""The metrics table and its in-memory recorder."""

import re
import time

import pytest

from app.config.version import config_version
from app.metrics import TABLE, MemoryMetrics, RayMetrics


def test_names_follow_prometheus_conventions():
    for metric in TABLE.values():
        assert re.fullmatch(r"baton_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.help.endswith(".")


def test_totals_add_up_by_label():
    metrics = MemoryMetrics()
    metrics.add("baton_sheds_total", stage="generator", priority="batch")
    metrics.add("baton_sheds_total", 2, stage="retriever", priority="")
    assert metrics.total("baton_sheds_total") == 3
    assert metrics.total("baton_sheds_total", stage="retriever") == 2
    assert metrics.count("baton_sheds_total") == 2


def test_a_gauge_holds_its_last_value():
    metrics = MemoryMetrics()
    for value in (3, 2):
        metrics.set("baton_queued", value, stage="generator", priority="")
    assert metrics.total("baton_queued", stage="generator") == 2


@pytest.mark.parametrize("recorder", [MemoryMetrics, RayMetrics])
@pytest.mark.parametrize(("name", "labels"), [("baton_none_total", {}), ("baton_sheds_total", {"model": "x"})])
def test_what_is_not_in_the_table_is_refused(recorder, name, labels):
    with pytest.raises(KeyError):
        recorder().add(name, **labels)


def test_a_counter_is_not_set_and_a_gauge_not_added_to():
    with pytest.raises(KeyError, match="counter"):
        MemoryMetrics().set("baton_sheds_total", 1, stage="generator", priority="")
    with pytest.raises(KeyError, match="gauge"):
        MemoryMetrics().add("baton_queued", stage="generator", priority="")


class Instrument:
    """Notes what it is given, as one of Ray's instruments."""

    def __init__(self):
        self.given = []

    def inc(self, value, tags):
        assert value > 0
        self.given.append((value, tags))

    def set(self, value, tags):
        self.given.append((value, tags))


def test_ray_is_not_asked_to_add_nothing(monkeypatch):
    instrument = Instrument()
    metrics = RayMetrics()
    monkeypatch.setattr(metrics, "_make", lambda metric: instrument)
    for value in (0.0, 2.0):
        metrics.add("baton_handoff_bytes_total", value, hop="retriever-gateway", path="inline")
    assert [value for value, _ in instrument.given] == [2.0]


def test_ray_is_told_a_gauge_again_and_again(monkeypatch):
    instrument = Instrument()
    metrics = RayMetrics(gauge_seconds=0.01)
    monkeypatch.setattr(metrics, "_make", lambda metric: instrument)
    metrics.set("baton_queued", 7, stage="generator", priority="")
    end = time.monotonic() + 5
    while len(instrument.given) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert instrument.given[:3] == [(7, {"stage": "generator", "priority": ""})] * 3


def test_ray_is_told_nothing_more_of_a_gauge_that_was_forgotten(monkeypatch):
    instrument = Instrument()
    metrics = RayMetrics(gauge_seconds=0.01)
    monkeypatch.setattr(metrics, "_make", lambda metric: instrument)
    metrics.forget("baton_index_passages", collection="never set")
    for name in ("kept", "gone"):
        metrics.set("baton_index_passages", 7, collection=name)
    metrics.forget("baton_index_passages", collection="gone")
    end = time.monotonic() + 5
    while len(instrument.given) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert {tags["collection"] for _, tags in instrument.given} <= {"kept", "gone"}
    assert instrument.given[-1] == (7, {"collection": "kept"})


def test_equal_settings_have_equal_versions():
    assert config_version({"a": 1, "b": [2]}) == config_version({"b": [2], "a": 1})
    assert config_version({"a": 1}) != config_version({"a": 2})
