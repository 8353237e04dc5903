"""Nodes, replicas, the object store and GPUs."""

from __future__ import annotations

from dashboards.board import SCOPE, Board, Panel, Row
from dashboards.boards import serve
from dashboards.boards.asks import largest, rate, total
from dashboards.promql import ANSWERING, select

_SPILLED = 'State="Spilled"'
#: Ray's own processes and its workers; other rows are named after the command line that started them.
_PROCESSES = 'Component=~"ray::.+|raylet|gcs|agent"'
_RESIDENT = select("ray_component_rss_bytes", _PROCESSES, scope=SCOPE)
_MEMORY = f"sum by (Component) ({_RESIDENT})"
#: Judged once for all that the board shows: by itself topk picks anew at every point, and more lines than ten appear.
_LARGEST = f"topk(10, sum by (Component) (max_over_time({_RESIDENT}[$__range] @ end())))"
_DEVICE = ("ip", "GpuIndex")
_MIB = 1024 * 1024

_SERVE = (
    serve.latency(),
    serve.requests(),
    serve.errors(),
    serve.replicas(),
    Panel(
        "Replica starts",
        "Since the cluster began; a replica that starts again and again fails.",
        "none",
        ((total("ray_serve_deployment_replica_starts_total", by=serve.BY), serve.NAMES),),
    ),
    Panel(
        "Queued and ongoing",
        "Calls that wait in handles, and calls in replicas.",
        "none",
        (
            (total("ray_serve_deployment_queued_queries", by=serve.BY), serve.NAMES + " queued"),
            (total("ray_serve_replica_processing_queries", by=serve.BY), serve.NAMES + " ongoing"),
        ),
    ),
)
_NODES = (
    Panel(
        "CPU by node",
        "Of all cores of the node.",
        "percent",
        ((largest("ray_node_cpu_utilization", by=("ip",)), "{{ip}}"),),
    ),
    Panel(
        "Memory by node",
        "Used of what the node has.",
        "bytes",
        (
            (largest("ray_node_mem_used", by=("ip",)), "{{ip}} used"),
            (largest("ray_node_mem_total", by=("ip",)), "{{ip}} total"),
        ),
    ),
    Panel(
        "Memory by process",
        "Resident bytes of the ten that were largest at any time shown, those that ended as well; shared memory counts "
        "in each process that maps it.",
        "bytes",
        ((f"{_MEMORY} and on (Component) {_LARGEST}", "{{Component}}"),),
    ),
    Panel(
        "Object store",
        "Used and free bytes of all nodes.",
        "bytes",
        (
            (total("ray_object_store_used_memory", by=("job",)), "used"),
            (total("ray_object_store_available_memory", by=("job",)), "free"),
            (total("ray_spill_manager_objects_bytes", _SPILLED, by=("job",)), "spilled to disk"),
        ),
    ),
    Panel(
        "Nodes",
        "Ray nodes that are there, and those the autoscaler waits for.",
        "none",
        (
            (total("ray_cluster_active_nodes", by=("job",)), "active"),
            (total("ray_cluster_pending_nodes", by=("job",)), "pending"),
        ),
    ),
    Panel(
        "Network by node",
        "Received and sent.",
        "Bps",
        (
            (largest("ray_node_network_receive_speed", by=("ip",)), "{{ip}} received"),
            (largest("ray_node_network_send_speed", by=("ip",)), "{{ip}} sent"),
        ),
    ),
)
_TOKENS = rate("ray_baton_tokens_total", 'direction="out"', by=("job",))


def _dcgm(metric: str) -> str:
    """Return a gauge of the DCGM exporter by GPU; it runs beside Baton, so its target's namespace is another one."""
    return f'max by (Hostname, gpu) ({metric}{{exported_namespace="$namespace"}})'


def _gpu(title: str, description: str, unit: str, dcgm: str, ray: str) -> Panel:
    """Return a panel on GPUs: from the DCGM exporter, and as Ray sees them only where that one tells nothing."""
    return Panel(
        title,
        f"{description} From the DCGM exporter, where it runs; else as Ray sees it.",
        unit,
        ((dcgm, "{{Hostname}} {{gpu}}"), (f"({ray}) unless on () ({dcgm})", "{{ip}} {{GpuIndex}}")),
    )


_WATTS_BY_DCGM = _dcgm("DCGM_FI_DEV_POWER_USAGE")
_WATTS_BY_RAY = f"{largest('ray_node_gpu_power_milliwatts', by=_DEVICE)} / 1000"
_WATTS = f"(sum({_WATTS_BY_DCGM}) or sum({_WATTS_BY_RAY}))"
_GPU = (
    _gpu(
        "GPU load",
        "Share of the time in which the GPU did something.",
        "percent",
        _dcgm("DCGM_FI_DEV_GPU_UTIL"),
        largest("ray_node_gpus_utilization", by=_DEVICE),
    ),
    _gpu(
        "GPU memory",
        "An engine takes its share at the start; what grows later is a leak.",
        "bytes",
        f"{_dcgm('DCGM_FI_DEV_FB_USED')} * {_MIB}",
        f"{largest('ray_node_gram_used', by=_DEVICE)} * {_MIB}",
    ),
    _gpu("GPU power", "What the GPUs draw.", "watt", _WATTS_BY_DCGM, _WATTS_BY_RAY),
    Panel(
        "Energy per request",
        "Watts of the GPUs by answered questions and embedded texts a second; other routes need no GPU to speak of.",
        "joule",
        (
            (
                f'{_WATTS} / sum(baton:requests:rate5m{{{SCOPE},{ANSWERING},outcome="answered"}})',
                "joules per request",
            ),
        ),
    ),
    Panel(
        "Energy per 1,000 tokens",
        "Watts of the GPUs by thousand generated tokens a second.",
        "joule",
        ((f"1000 * {_WATTS} / sum({_TOKENS})", "joules per 1,000 tokens"),),
    ),
)

BOARD = Board(
    "baton-cluster",
    "Baton / Cluster and GPU",
    "What the pipeline runs on.",
    (Row("Serve", _SERVE), Row("Nodes", _NODES), Row("GPU", _GPU)),
)
