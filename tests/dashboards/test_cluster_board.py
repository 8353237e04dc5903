"""Panels of the cluster's board, worked out by promtool: GPUs and energy with the DCGM exporter and without, memory."""

import pytest
import yaml

from tests.dashboards import names
from tests.dashboards.test_rules import promtool

BOARD = names.boards()["baton-cluster"]
SCOPE = 'namespace="baton",job="baton-metrics"'
NODE = f'{SCOPE},ip="10.0.0.1",GpuIndex="0"'
DEVICE = 'namespace="gpu-operator",job="dcgm",exported_namespace="baton",Hostname="node",gpu="0"'
#: One GPU: 100 W as Ray sees it, 200 W as DCGM does; load and memory alike.
RAY = {
    f"ray_node_gpu_power_milliwatts{{{NODE}}}": 100_000,
    f"ray_node_gpus_utilization{{{NODE}}}": 10,
    f"ray_node_gram_used{{{NODE}}}": 1,
}
DCGM = {
    f"DCGM_FI_DEV_POWER_USAGE{{{DEVICE}}}": 200,
    f"DCGM_FI_DEV_GPU_UTIL{{{DEVICE}}}": 20,
    f"DCGM_FI_DEV_FB_USED{{{DEVICE}}}": 2,
}
REQUESTS = {
    f'baton:requests:rate5m{{{SCOPE},route="{route}",outcome="{outcome}"}}': rate
    for route, outcome, rate in (
        ("/v1/chat/completions", "answered", 2),
        ("/v1/chat/completions", "failed", 50),
        ("/healthz", "answered", 50),
    )
}


def queries(title):
    (panel,) = (found for found in names.panels(BOARD) if found["title"] == title)
    return [names.filled(target["expr"]) for target in panel["targets"]]


def check(folder, world, expected):
    """Hold each expression against its value in a world that stands still; None: no row."""
    cases = [
        {
            "expr": f"sum({expr})",
            "eval_time": "10m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for expr, value in expected
    ]
    series = [{"series": name, "values": f"{value}x20"} for name, value in world.items()]
    path = folder / "case.yaml"
    test = {"interval": "1m", "input_series": series, "promql_expr_test": cases}
    path.write_text(yaml.safe_dump({"fuzzy_compare": True, "tests": [test]}))
    promtool("test", "rules", str(path))


@pytest.mark.parametrize(("world", "joules"), [(RAY, 50), (RAY | DCGM, 100), (DCGM, 100)])
def test_energy_is_divided_by_answered_questions_and_comes_from_what_there_is(tmp_path, world, joules):
    tokens = {f'ray_baton_tokens_total{{{SCOPE},direction="out"}}': "0+60"}  # one a second
    (request,), (thousand) = queries("Energy per request"), queries("Energy per 1,000 tokens")
    check(tmp_path, world | REQUESTS | tokens, [(request, joules), (thousand[0], joules * 2 * 1000)])


@pytest.mark.parametrize(("title", "factor"), [("GPU load", 10), ("GPU memory", 2**20), ("GPU power", 100)])
def test_a_gpu_is_shown_once(tmp_path, title, factor):
    dcgm, ray = queries(title)
    check(tmp_path, RAY, [(dcgm, None), (ray, factor)])
    check(tmp_path, RAY | DCGM, [(dcgm, 2 * factor), (ray, None)])


def test_memory_is_shown_of_the_ten_that_were_largest_at_any_time(tmp_path):
    world = {f'ray_component_rss_bytes{{{SCOPE},Component="ray::{size}"}}': str(size) for size in range(100, 112)}
    # One was far larger a while ago.
    world[f'ray_component_rss_bytes{{{SCOPE},Component="ray::was"}}'] = "500x5 7"
    (memory,) = queries("Memory by process")
    check(tmp_path, world, [(memory, 7 + sum(range(103, 112)))])
