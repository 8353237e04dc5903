"""How many replicas an engine's load asks for, and what an engine tells of its load."""

from types import SimpleNamespace

import pytest

from app.config.deployment_options import check_options
from app.deployments.engine_load import EngineLoad
from app.scaling import Seen, wanted_replicas

POLICY = "app.deployments.engine_policy:EnginePolicy"


def seen(replicas=2, ongoing=10, totals=(), **measured):
    return Seen(replicas, ongoing, 5, measured, totals)


@pytest.mark.parametrize(
    ("load", "targets", "wanted"),
    [
        (seen(running={"a": 16, "b": 16}), {"running": 16}, 2),
        (seen(running={"a": 24, "b": 24}), {"running": 16}, 3),
        (seen(running={"a": 32, "b": 0}), {"running": 16}, 2),
        (seen(running={"a": 4, "b": 4}), {"running": 16}, 1),  # whatever is at work keeps a replica
        (seen(ongoing=0, running={"a": 0, "b": 0}), {"running": 16}, 0),
        (seen(running={"a": 4, "b": 4}, waiting={"a": 6, "b": 6}), {"running": 16, "waiting": 4}, 3),
        (seen(kv_cache={"a": 0.8, "b": 0.8}), {"kv_cache": 0.4}, 4),
        (seen(requests_per_second={"a": 3, "b": 5}), {"requests_per_second": 2}, 4),
        (seen(ongoing=60), {"ongoing": 20}, 3),
        (seen(totals=[(8, 40)]), {}, 5),
        (seen(running={"a": 16}), {"running": 16}, 2),  # one replica has told, the other is new
        (seen(ongoing=10), {"running": 16}, 2),  # none has: by ongoing requests
        (seen(ongoing=0), {"running": 16}, 0),
    ],
)
def test_the_signal_that_asks_for_most_decides(load, targets, wanted):
    assert wanted_replicas(load, targets) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("kwargs", "named"),
    [
        ({}, "targets and queries are empty"),
        ({"targets": {"speed": 1}}, "targets.speed: there is no such signal: take one of ongoing, running"),
        ({"targets": {"running": 0}}, "targets.running must be a number above 0"),
        ({"targets": {"running": "16"}}, "targets.running must be a number above 0"),
        ({"targets": {"running": True}}, "targets.running must be a number above 0"),
        ({"targets": {"kv_cache": 80}}, "targets.kv_cache is the used share"),
        ({"targets": [16]}, "targets must be a mapping"),
        ({"queries": {"sum(x)": -1}}, r"queries.sum\(x\) must be a number above 0"),
        ({"target": {"running": 16}}, "policy_kwargs.target: there is no such key"),
    ],
)
def test_a_policy_without_a_sense_is_refused_before_it_is_sent(kwargs, named):
    with pytest.raises(ValueError, match=named):
        check_options({"autoscaling_config": {"policy": {"policy_function": POLICY, "policy_kwargs": kwargs}}})


def test_policies_pass_as_they_were_written():
    own = {"policy_function": POLICY, "policy_kwargs": {"targets": {"running": 16}, "queries": {"sum(x)": 8}}}
    for policy in (own, {"policy_function": "mine.policy:by_weekday"}):
        assert check_options({"autoscaling_config": {"policy": policy}})["autoscaling_config"]["policy"] == policy


@pytest.mark.parametrize("policy", [{}, {"policy_function": "nowhere"}, {"policy_function": POLICY, "kwargs": {}}])
def test_a_policy_that_ray_would_not_take_is_refused(policy):
    with pytest.raises(ValueError, match="policy"):
        check_options({"autoscaling_config": {"policy": policy}})


def scheduled(running, waiting, skipped, used):
    return SimpleNamespace(
        num_running_reqs=running, num_waiting_reqs=waiting, num_skipped_waiting_reqs=skipped, kv_cache_usage=used
    )


def test_an_engine_tells_what_its_schedulers_told_last():
    manager = SimpleNamespace(stat_loggers=[])
    load = EngineLoad()
    load.listen(SimpleNamespace(logger_manager=manager))
    (listener,) = manager.stat_loggers
    for engine, numbers in ((0, (9, 9, 9, 0.9)), (0, (3, 1, 1, 0.25)), (1, (4, 0, 0, 0.5))):
        listener.record(scheduled(*numbers), None, mm_cache_stats=None, engine_idx=engine)
    listener.record(None, None)
    found = load.stats()
    assert (found["running"], found["waiting"], found["kv_cache"]) == (7, 2, 0.5)


def test_an_engine_without_statistics_tells_its_requests():
    load = EngineLoad()
    load.listen(SimpleNamespace(logger_manager=None))
    for _ in range(5):
        load.count_request()
    assert set(load.stats()) == {"requests_per_second"}
    assert load.stats() == {"requests_per_second": 0}
