"""The terminal's board, from pages in Prometheus' format over real HTTP."""

import math
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.config.local import ROOT
from app.ops.top.__main__ import main
from app.ops.top.window import Reading, Window
from tests.unit.ops.serving import Answers, serving

PAGE = """\
# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
# TYPE ray_baton_requests_total counter
ray_baton_requests_total{{outcome="answered",route="/v1/chat/completions"}} {answered}
ray_baton_requests_total{{outcome="shed",route="/v1/chat/completions"}} 3
# TYPE ray_baton_stage_milliseconds histogram
ray_baton_stage_milliseconds_bucket{{stage="retriever",le="10.0"}} {quick}
ray_baton_stage_milliseconds_bucket{{stage="retriever",le="20.0"}} {answered}
ray_baton_stage_milliseconds_bucket{{stage="retriever",le="+Inf"}} {answered}
ray_baton_stage_milliseconds_count{{stage="retriever"}} {answered}
ray_baton_stage_milliseconds_sum{{stage="retriever"}} 100
# TYPE ray_baton_queued gauge
ray_baton_queued{{stage="retriever"}} 7
# TYPE ray_baton_sheds_total counter
ray_baton_sheds_total{{stage="retriever"}} 3
# TYPE ray_baton_handoffs_total counter
ray_baton_handoffs_total{{hop="retriever-postprocessor",path="shared"}} {answered}
# TYPE ray_baton_handoff_bytes_total counter
ray_baton_handoff_bytes_total{{hop="retriever-postprocessor",path="shared"}} {bytes}
# TYPE ray_vllm_num_requests_running gauge
ray_vllm_num_requests_running{{model_name="smollm2"}} 5
# TYPE ray_vllm_kv_cache_usage_perc gauge
ray_vllm_kv_cache_usage_perc{{model_name="smollm2"}} 0.25
# TYPE ray_node_cpu_utilization gauge
ray_node_cpu_utilization{{ip="10.0.0.1"}} 42
# TYPE ray_node_mem_used gauge
ray_node_mem_used{{ip="10.0.0.1"}} 1073741824
# TYPE ray_node_mem_total gauge
ray_node_mem_total{{ip="10.0.0.1"}} 4294967296
"""
GPUS = """\
# TYPE ray_node_gpus_utilization gauge
ray_node_gpus_utilization{ip="10.0.0.1",GpuIndex="0"} 90
ray_node_gpus_utilization{ip="10.0.0.1",GpuIndex="1"} 70
# TYPE ray_node_gram_used gauge
ray_node_gram_used{ip="10.0.0.1",GpuIndex="0"} 1024
# TYPE ray_node_gram_available gauge
ray_node_gram_available{ip="10.0.0.1",GpuIndex="0"} 3072
# TYPE ray_node_gpu_power_milliwatts gauge
ray_node_gpu_power_milliwatts{ip="10.0.0.1",GpuIndex="0"} 350000
"""


def page(answered=100, quick=50, started=1000.0):
    return PAGE.format(answered=answered, quick=quick, started=started, bytes=answered * 6 * 1024 * 1024)


@pytest.fixture
def node():
    """A metrics page; assign ``text`` to change it."""

    class Page(ThreadingHTTPServer):
        text = page()

    class Handler(Answers, BaseHTTPRequestHandler):
        def do_GET(self):
            self.reply(self.server.text.encode())

    with serving(Page(("127.0.0.1", 0), Handler)) as server:
        server.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        yield server


def once(capsys, *urls):
    code = main(["--once", *(part for url in urls for part in ("--url", url))])
    out = capsys.readouterr()
    return code, out.out, out.err


def row(text, name):
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def test_one_board_of_all_since_the_start(node, capsys):
    code, out, _ = once(capsys, node.url)
    assert code == 0
    assert "answered 100" in out
    assert "shed 3" in out
    assert row(out, "retriever ")[2:7] == ["10.0", "19.0", "–", "7", "–"]
    assert row(out, "retriever-postprocessor")[1] == "shared"
    assert "6.0 MiB" in out
    assert row(out, "smollm2")[1:5] == ["5", "–", "25", "%"]
    assert "42 %" in out
    assert "1.0 GiB of 4.0 GiB" in out
    assert "none" in out, "no GPU"
    assert "\x1b" not in out, "a pipe gets no control codes"


def test_gpus_are_shown_where_there_are_some(node, capsys):
    node.text = page() + GPUS
    _, out, _ = once(capsys, node.url)
    for part in ("80 %", "1.0 GiB of 4.0 GiB", "350 W"):
        assert part in out


def test_each_nodes_gpu_load_is_that_of_its_own_gpus(node, capsys):
    more = ["# TYPE ray_node_cpu_utilization gauge"]
    more += [f'ray_node_cpu_utilization{{ip="10.0.0.{place}"}} 5' for place in (1, 2, 3)]
    more += ["# TYPE ray_node_gpus_utilization gauge"]
    loads = {1: [90], 2: [10, 20, 30, 40]}
    for place, found in loads.items():
        more += [
            f'ray_node_gpus_utilization{{ip="10.0.0.{place}",GpuIndex="{index}"}} {load}'
            for index, load in enumerate(found)
        ]
    node.text = page().split("# TYPE ray_node_cpu_utilization")[0] + "\n".join(more) + "\n"
    _, out, _ = once(capsys, node.url)
    # CPU, then memory and object store that are not told, then the GPUs.
    found = {name: row(out, name)[3:6] for name in ("10.0.0.1", "10.0.0.2", "10.0.0.3")}
    assert found["10.0.0.1"] == ["–", "–", "90"]
    assert found["10.0.0.2"] == ["–", "–", "25"]
    assert found["10.0.0.3"] == ["–", "–", "none"]


def test_nodes_are_added_up(node, capsys):
    _, out, _ = once(capsys, node.url, node.url)
    assert "answered 200" in out


def test_nothing_running_is_told_in_a_sentence(capsys):
    code, out, err = once(capsys, "http://127.0.0.1:9/metrics")
    assert (code, out) == (1, "")
    assert err.startswith("baton: Nothing is running that answers at http://127.0.0.1:9/metrics")
    assert "make run" in err


def test_another_clusters_page_is_told_in_a_sentence(node, capsys):
    node.text = "# TYPE up gauge\nup 1\n"
    code, _, err = once(capsys, node.url)
    assert code == 1
    assert "no metrics of Baton" in err


def test_a_window_counts_what_happened_in_it():
    old, new = Reading.of([page(100, 50)], at=2000.0), Reading.of([page(300, 50)], at=2010.0)
    window = Window(old, new)
    assert window.rate("ray_baton_requests_total", outcome="answered") == 20
    # All 200 of the window took 10 to 20 ms.
    assert window.quantile(0.5, "ray_baton_stage_milliseconds", stage="retriever") == 15
    assert math.isnan(Window(new, new).quantile(0.5, "ray_baton_stage_milliseconds"))


def test_a_process_that_began_anew_does_not_count_backwards():
    window = Window(Reading.of([page(300)], at=2000.0), Reading.of([page(40, 20)], at=2010.0))
    assert window.increase("ray_baton_requests_total", outcome="answered") == 40


def test_a_pipe_gets_boards_one_after_another(node):
    command = [sys.executable, "-m", "app.ops.top", "--url", node.url, "--interval", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        heads = 0
        for line in process.stdout:
            assert "\x1b" not in line
            heads += line.startswith("Baton ")
            if heads == 3:
                break
        process.terminate()
    assert heads == 3
