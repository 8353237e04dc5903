"""The board: what a window of the metrics says, as tables for a terminal."""

from __future__ import annotations

import math
import time

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.config.serve import STAGES
from app.ops.top.window import Window

_STAGE_ORDER = ("gateway", *STAGES[:3], "generator", STAGES[3])
_NOTHING = "–"
_SLOW_MILLISECONDS = 1_000


def board(window: Window, *, whole_life: bool) -> RenderableType:
    """Return the board; ``whole_life``: the window begins when the cluster did."""
    tables = (_stages(window), _hops(window), _engines(window), _nodes(window))
    return Group(_head(window, whole_life), *(part for table in tables for part in ("", table)))


def _head(window: Window, whole_life: bool) -> RenderableType:
    span = f"since the start {window.seconds:,.0f} s ago" if whole_life else f"last {window.seconds:.0f} s"
    text = Text.assemble(("Baton", "bold"), f"  {time.strftime('%H:%M:%S', time.localtime(window.new.at))}  {span}\n")
    requests = "ray_baton_requests_total"
    parts = [f"{window.rate(requests):.2f} requests/s"]
    for outcome in window.values("outcome", requests):
        count = window.increase(requests, outcome=outcome)
        if count:
            parts.append(f"{outcome} {count:,.0f}")
    tokens = "ray_baton_tokens_total"
    parts.append(
        f"tokens/s in {window.rate(tokens, direction='in'):.1f} out {window.rate(tokens, direction='out'):.1f}"
    )
    parts.append("request ms " + _quantiles(window, "ray_baton_request_milliseconds"))
    text.append("  ".join(parts))
    return text


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    return table


def _stages(window: Window) -> Table:
    table = _table("Stages", "stage", "per s", "p50 ms", "p95 ms", "wait p95", "queued", "at work", "shed", "timeouts")
    timed, waited = "ray_baton_stage_milliseconds", "ray_baton_queue_milliseconds"
    known = set(window.values("stage", f"{timed}_count", f"{waited}_count", "ray_baton_ongoing"))
    for stage in (name for name in _STAGE_ORDER if name in known):
        p95 = window.quantile(0.95, timed, stage=stage)
        table.add_row(
            stage,
            _number(window.rate(f"{timed}_count", stage=stage), 2),
            _number(window.quantile(0.5, timed, stage=stage)),
            Text(_number(p95), "yellow" if p95 > _SLOW_MILLISECONDS else ""),
            _number(window.quantile(0.95, waited, stage=stage)),
            _number(window.gauge("ray_baton_queued", stage=stage), 0),
            _number(window.gauge("ray_baton_ongoing", stage=stage), 0),
            _bad(window.increase("ray_baton_sheds_total", stage=stage)),
            _bad(window.increase("ray_baton_timeouts_total", stage=stage)),
        )
    return table


def _hops(window: Window) -> Table:
    table = _table("Hops", "from-to", "path", "per s", "bytes each", "bytes/s", "p50 ms", "p95 ms")
    count, size = "ray_baton_handoffs_total", "ray_baton_handoff_bytes_total"
    for hop in window.values("hop", count):
        for path in window.values("path", count):
            handed = window.increase(count, hop=hop, path=path)
            if not handed:
                continue
            moved = window.increase(size, hop=hop, path=path)
            took = [
                _number(window.quantile(q, "ray_baton_handoff_milliseconds", hop=hop, path=path)) for q in (0.5, 0.95)
            ]
            rate = _number(handed / window.seconds, 2)
            colour = "" if path == "shared" else "yellow"
            table.add_row(hop, Text(path, colour), rate, _bytes(moved / handed), _bytes(moved / window.seconds), *took)
    return table


def _engines(window: Window) -> Table:
    table = _table(
        "Engines", "model", "running", "waiting", "KV cache", "prefix hits", "tokens/s", "first ms", "token ms"
    )
    for model in window.values("model_name", "ray_vllm_num_requests_running"):
        asked = window.increase("ray_vllm_prefix_cache_queries_total", model_name=model)
        hits = window.increase("ray_vllm_prefix_cache_hits_total", model_name=model) / asked if asked else None
        cache = window.gauge("ray_vllm_kv_cache_usage_perc", model_name=model)
        table.add_row(
            model,
            _number(window.gauge("ray_vllm_num_requests_running", model_name=model), 0),
            _number(window.gauge("ray_vllm_num_requests_waiting", model_name=model), 0),
            _share(cache),
            _share(hits),
            _number(window.rate("ray_vllm_generation_tokens_total", model_name=model)),
            _quantiles(window, "ray_baton_time_to_first_token_milliseconds", model=model),
            _quantiles(window, "ray_baton_inter_token_milliseconds", model=model),
        )
    return table


def _nodes(window: Window) -> Table:
    table = _table("Nodes", "node", "CPU", "memory", "object store", "GPU", "GPU memory", "power")
    stores = {
        dict(key).get("NodeAddress", ""): key for key in window.new.series.get("ray_object_store_used_memory", {})
    }
    for node in window.values("ip", "ray_node_cpu_utilization"):
        cpu = window.gauge("ray_node_cpu_utilization", ip=node)
        # A node has a row per GPU: the mean of their use, the sum of all else.
        busy = window.mean("ray_node_gpus_utilization", ip=node)
        power = window.gauge("ray_node_gpu_power_milliwatts", ip=node)
        table.add_row(
            node,
            _share(None if cpu is None else cpu / 100),
            _of(window.gauge("ray_node_mem_used", ip=node), window.gauge("ray_node_mem_total", ip=node)),
            _store(window, node) if node in stores else _NOTHING,
            "none" if busy is None else _share(busy / 100),
            _gpu_memory(window, node),
            _NOTHING if power is None else f"{power / 1000:.0f} W",
        )
    return table


def _store(window: Window, node: str) -> str:
    used = window.gauge("ray_object_store_used_memory", NodeAddress=node) or 0.0
    free = window.gauge("ray_object_store_available_memory", NodeAddress=node) or 0.0
    return _of(used, used + free)


def _gpu_memory(window: Window, node: str) -> str:
    used, free = (window.gauge(f"ray_node_gram_{kind}", ip=node) for kind in ("used", "available"))
    if used is None or free is None:
        return _NOTHING
    megabyte = 1024 * 1024  # Ray tells GPU memory in these
    return _of(used * megabyte, (used + free) * megabyte)


def _quantiles(window: Window, histogram: str, **labels: str) -> str:
    return " / ".join(_number(window.quantile(share, histogram, **labels)) for share in (0.5, 0.95))


def _number(value: float | None, digits: int = 1) -> str:
    return _NOTHING if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def _bad(count: float) -> Text:
    return Text(f"{count:,.0f}", "red" if count else "")


def _share(value: float | None) -> str:
    return _NOTHING if value is None else f"{100 * value:.0f} %"


def _of(used: float | None, total: float | None) -> str:
    return _NOTHING if used is None or not total else f"{_bytes(used)} of {_bytes(total)}"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
