"""Two and a half hours in which all is well and much goes on: no alert may fire.

A batch works all the time, rows of it are shed and wait. A caller wants answers at once and does not get them. At night
one question fails now and then. A new Ray cluster replaces the old one. Nothing is scraped for eight minutes. Somebody
drops a collection. Old counts of faults that are over stand on the pages.
"""

from __future__ import annotations

from tests.dashboards.alert_cases import Series

MINUTES = 150
#: When the new cluster begins to start, when it takes over, and when the old one is gone; then the gap in scraping.
_STARTS, _SERVES, _GONE, _GAP, _GAP_ENDS = 40, 48, 52, 100, 108
LOOKED_AT = (30, 45, 50, 55, 62, 75, 99, 109, 112, 119, 130, 149)
_OLD, _NEW = "old", "new"


def _values(cluster: str, first: float, step: float = 0, since: int = 0) -> str:
    """Return a value a minute while the cluster runs; a counter grows by ``step`` from the minute ``since`` on."""
    begin, end = (0, _GONE) if cluster == _OLD else (_STARTS, MINUTES)
    begin = max(begin, since)
    points = ["_"] * begin + [f"{first + step * (minute - begin):g}" for minute in range(begin, end)]
    if cluster == _NEW:
        points[_GAP:_GAP_ENDS] = ["_"] * (_GAP_ENDS - _GAP)
    return " ".join([*points, "stale"] if cluster == _OLD else points)


def _name(metric: str, cluster: str, **labels: str) -> str:
    own = {"namespace": "baton", "job": "baton-metrics", "instance": f"{cluster}:8080"}
    own |= {"SessionName": cluster, "WorkerId": cluster}
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in (own | labels).items()) + "}"


def _both(metric: str, first: float, step: float = 0, **labels: str) -> Series:
    """Return a metric of both clusters, one after the other; counters of the new one begin when it serves."""
    since = _SERVES if step else 0
    new = _values(_NEW, first or step, step, since)
    return {_name(metric, _OLD, **labels): _values(_OLD, first, step), _name(metric, _NEW, **labels): new}


def _times(metric: str, within: dict[str, float], **labels: str) -> Series:
    series: Series = {}
    for bound, step in within.items():
        series |= _both(f"{metric}_bucket", 0, step, **labels, le=bound)
    return series | _both(f"{metric}_count", 0, max(within.values()), **labels)


def _requests() -> Series:
    name, chat = "ray_baton_requests_total", {"route": "/v1/chat/completions", "profile": "default"}
    awaited = {**chat, "priority": "interactive"}
    series = _both(name, 0, 2, **awaited, status="200", outcome="answered")
    # One failure before the gap and one after it: a count of two within the hours that a budget is looked at.
    series |= {
        _name(name, _NEW, **awaited, status="502", outcome="failed"): _values(_NEW, 1, 0, 60),
        _name(name, _NEW, **awaited, status="504", outcome="timeout"): _values(_NEW, 1, 0, 112),
    }
    series |= _both(name, 0, 30, **awaited, status="504", outcome="own_deadline")
    series |= _both(name, 0, 50, **awaited, status="400", outcome="blocked")
    for outcome, step in (("answered", 20), ("shed", 40), ("timeout", 10)):
        series |= _both(name, 0, step, **chat, priority="batch", status="200", outcome=outcome)
    for stage in ("generator", "gateway"):
        series |= _both("ray_baton_sheds_total", 0, 20, stage=stage, priority="batch")
    return series


def _latencies() -> Series:
    first, whole = "ray_baton_time_to_first_token_milliseconds", "ray_baton_request_milliseconds"
    model, chat = {"model": "llama"}, {"route": "/v1/chat/completions", "outcome": "answered"}
    series = _times(first, {"500.0": 2, "2000.0": 2, "+Inf": 2}, **model, priority="interactive")
    series |= _times(first, {"500.0": 0.1, "2000.0": 1, "+Inf": 20}, **model, priority="batch")
    series |= _times(whole, {"30000.0": 2, "+Inf": 2}, **chat, priority="interactive")
    series |= _times(whole, {"30000.0": 1, "+Inf": 20}, **chat, priority="batch")
    return series | _times("ray_baton_grounding", {"0.5": 0.5, "+Inf": 10}, profile="default", variant="")


def _stages() -> Series:
    series = _both("ray_baton_queued", 60, stage="generator", priority="batch")
    series |= _both("ray_serve_deployment_queued_queries", 1, application="pipeline", deployment="retriever")
    series |= _both("ray_vllm_num_requests_waiting", 0, model_name="llama", engine="0")
    series |= _both("ray_vllm_kv_cache_usage_perc", 0.97, model_name="llama", engine="0")
    series |= _both("ray_baton_guardrail_failed_open_total", 1, direction="input")
    series |= _both("ray_baton_config_refused_total", 1, deployment="gateway")
    # What the new cluster has not counted: only the old one's faults stand on a page.
    for metric in ("ray_baton_guardrail_failed_open_total", "ray_baton_config_refused_total"):
        series = {name: values for name, values in series.items() if not (metric in name and 'WorkerId="new"' in name)}
    series |= _both("ray_baton_batch_rows_total", 0, 20, outcome="answered")
    series |= _both("ray_baton_batch_rows_total", 0, 2, outcome="failed")
    series |= _both("ray_baton_index_passages", 1000, collection="kept")
    series |= {_name("ray_baton_index_passages", _OLD, collection="dropped"): "5000x35 stale"}
    series |= {
        _name("ray_baton_config_version", _OLD, deployment="gateway"): _values(_OLD, 7),
        _name("ray_baton_config_version", _NEW, deployment="gateway"): _values(_NEW, 8),
    }
    return series | _both("ray_baton_key_expires_timestamp_seconds", 8640000, key="shop")


def _cluster() -> Series:
    series = _both("up", 1)
    for deployment in ("gateway", "retriever"):
        labels = {"application": "pipeline", "deployment": deployment}
        series |= _both("ray_serve_autoscaling_target_replicas", 2, **labels)
        series |= {_name("ray_serve_deployment_status", _OLD, **labels): _values(_OLD, 6)}
        starting = _values(_NEW, 6, 0, _SERVES).split(" ")
        starting[_STARTS:_SERVES] = ["2"] * (_SERVES - _STARTS)
        series |= {_name("ray_serve_deployment_status", _NEW, **labels): " ".join(starting)}
        for replica in ("r1", "r2"):
            name = "ray_serve_deployment_replica_healthy"
            series |= {_name(name, _OLD, **labels, replica=replica): _values(_OLD, 1)}
            series |= {_name(name, _NEW, **labels, replica=replica): _values(_NEW, 1, 0, _SERVES)}
    series |= _both("ray_serve_application_status", 6, application="pipeline")
    series |= _both("ray_spill_manager_objects_bytes", 0, State="Spilled")
    gpu = {"GpuIndex": "0", "ip": "10.0.0.1"}
    return series | _both("ray_node_gram_used", 60000, **gpu) | _both("ray_node_gram_available", 20000, **gpu)


def _exporters() -> Series:
    scraped = 'namespace="monitoring",exported_namespace="baton"'
    job = f'{{{scraped},job_name="baton-index-1a2b3c4d"}}'
    pod = f'{scraped},pod="exporter-0",exported_pod="baton-x-worker-1"'
    pending = " ".join("1" if _STARTS <= minute < _SERVES else "0" for minute in range(MINUTES))
    return {
        f"kube_job_status_failed{job}": f"1x{MINUTES}",
        f"kube_job_status_succeeded{job}": f"1x{MINUTES}",
        f'kube_pod_status_phase{{{pod},phase="Pending"}}': pending,
        f'certmanager_certificate_expiration_timestamp_seconds{{{scraped},name="gateway"}}': f"8640000x{MINUTES}",
    }


def series() -> Series:
    """Return all of it."""
    return _requests() | _latencies() | _stages() | _cluster() | _exporters()
