"""The metrics table and its in-memory recorder."""

import re

import pytest

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
    metrics.add("baton_sheds_total", stage="generator")
    metrics.add("baton_sheds_total", 2, stage="retriever")
    assert metrics.total("baton_sheds_total") == 3
    assert metrics.total("baton_sheds_total", stage="retriever") == 2


@pytest.mark.parametrize(("name", "labels"), [("baton_none_total", {}), ("baton_sheds_total", {"model": "x"})])
def test_what_is_not_in_the_table_is_refused(name, labels):
    with pytest.raises(KeyError):
        MemoryMetrics().add(name, **labels)


def test_ray_is_not_asked_to_add_nothing(monkeypatch):
    added = []

    class Counter:
        def inc(self, value, tags):
            assert value > 0
            added.append(value)

    metrics = RayMetrics()
    monkeypatch.setattr(metrics, "_make", lambda metric: Counter())
    for value in (0.0, 2.0):
        metrics.add("baton_handoff_bytes_total", value, hop="retriever-gateway", path="inline")
    assert added == [2.0]
