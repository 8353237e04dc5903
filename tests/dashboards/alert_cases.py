"""For each alert the series under which it fires, and those under which it stays silent, in promtool's notation."""

from __future__ import annotations

from dataclasses import dataclass

Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    """``at`` is when the alert is looked at; ``interval`` the distance of the series' values.

    ``fires_too`` and ``silent_too`` are further series, looked at by themselves.
    """

    fires: Series
    silent: Series
    at: str = "2h"
    interval: str = "1m"
    fires_too: tuple[Series, ...] = ()
    silent_too: tuple[Series, ...] = ()


def _series(metric: str, **labels: str) -> str:
    scope = {"namespace": "baton", "job": "baton-metrics", "WorkerId": "a"} | labels
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in scope.items()) + "}"


def _requests(answered: int, failed: int, points: int) -> Series:
    route = {"route": "/v1/chat/completions", "profile": "default", "priority": "interactive"}
    good = _series("ray_baton_requests_total", **route, status="200", outcome="answered")
    bad = _series("ray_baton_requests_total", **route, status="502", outcome="failed")
    blocked = _series("ray_baton_requests_total", **route, status="400", outcome="blocked")
    # What the guardrail blocks is no failure, however much of it there is.
    return {good: f"0+{answered}x{points}", bad: f"0+{failed}x{points}", blocked: f"0+1000x{points}"}


def _ended(outcome: str, values: str, **labels: str) -> Series:
    route = {"route": "/v1/chat/completions", "profile": "default", "priority": "interactive", "status": "200"}
    return {_series("ray_baton_requests_total", **(route | labels), outcome=outcome): values}


#: One question in a quiet night, and it failed.
_QUIET = _ended("answered", "30x125") | _ended("failed", "_x100 1x25")
_ANSWERED = _ended("answered", "0+60x120")
#: Rows of a batch are shed, somebody wants answers at once, and neither is a fault.
_ASKED_FOR = (
    _ANSWERED | _ended("shed", "0+20x120", priority="batch"),
    _ANSWERED | _ended("own_deadline", "0+20x120"),
)
_NO_RETRIEVAL = _ANSWERED | _ended("failed", "0+20x120", route="/v1/retrieve")
_NO_APPLICATION = _ended("failed", "0+20x120", route="/analyze", profile="", priority="")
#: A replica's first count is of many at once.
_BURST = _ended("answered", "0+1x120") | _ended("shed", "_x112 500x20")
#: An old count that was not scraped for a while.
_GAP = "1x100 _x8 1x30"


def _histogram(metric: str, bound: str, within: int, every: int, points: int, **labels: str) -> Series:
    return {
        _series(f"{metric}_bucket", **labels, le=bound): f"0+{within}x{points}",
        _series(f"{metric}_bucket", **labels, le="+Inf"): f"0+{every}x{points}",
        _series(f"{metric}_count", **labels): f"0+{every}x{points}",
    }


_CHAT = {"route": "/v1/chat/completions", "profile": "default", "outcome": "answered"}
_FIRST, _WHOLE = "ray_baton_time_to_first_token_milliseconds", "ray_baton_request_milliseconds"
_WAITING_ROWS = _histogram(_FIRST, "2000.0", 20, 20, 120, model="llama", priority="interactive") | _histogram(
    _FIRST, "2000.0", 0, 100, 120, model="llama", priority="batch"
)
_FAILED_OPEN = _series("ray_baton_guardrail_failed_open_total", direction="input")
_REFUSED = _series("ray_baton_config_refused_total", deployment="gateway")
_DEPLOYMENT = {"application": "pipeline", "deployment": "retriever"}
_HEALTHY = _series("ray_serve_deployment_replica_healthy", **_DEPLOYMENT, replica="r1")
_TARGET = _series("ray_serve_autoscaling_target_replicas", **_DEPLOYMENT)
_STATUS = _series("ray_serve_deployment_status", **_DEPLOYMENT)
_ENTRANCE = {"application": "pipeline", "deployment": "gateway"}
_GATEWAY = _series("ray_serve_deployment_replica_healthy", **_ENTRANCE, replica="r1")
_GATEWAYS = _series("ray_serve_deployment_status", **_ENTRANCE)
_CACHE = _series("ray_vllm_kv_cache_usage_perc", model_name="llama", engine="0")
_WAITING = _series("ray_vllm_num_requests_waiting", model_name="llama", engine="0")
_PASSAGES = _series("ray_baton_index_passages", collection="docs")
_GPU = {"GpuIndex": "0", "ip": "10.0.0.1"}
_USED, _FREE = _series("ray_node_gram_used", **_GPU), _series("ray_node_gram_available", **_GPU)
_KUBE = 'namespace="baton",job="kube-state-metrics"'
_JOB = f'{{{_KUBE},job_name="baton-index-1a2b3c4d"}}'
_PENDING = f'kube_pod_status_phase{{{_KUBE},phase="Pending",pod="baton-x-worker-1"}}'


def _renamed(series: str, namespace: str = "baton") -> str:
    """Return a series as Prometheus stores it where the scrape keeps the labels of the exporter's own pod."""
    found = series.replace('namespace="baton"', f'namespace="monitoring",exported_namespace="{namespace}"')
    return found.replace("pod=", 'pod="exporter-0",exported_pod=')


_CERTIFICATE = 'certmanager_certificate_expiration_timestamp_seconds{namespace="baton",name="gateway"}'

_KEY, _LASTING = (_series("ray_baton_key_expires_timestamp_seconds", key=name) for name in ("shop", "batch"))


def _versions(second: int) -> Series:
    name = "ray_baton_config_version"
    return {
        _series(name, deployment="gateway"): "7x120",
        _series(name, deployment="gateway", WorkerId="b"): f"{second}x120",
    }


def _rows(answered: int, failed: int) -> Series:
    name = "ray_baton_batch_rows_total"
    return {_series(name, outcome="answered"): f"0+{answered}x120", _series(name, outcome="failed"): f"0+{failed}x120"}


_FAILED_ROWS = _series("ray_baton_batch_rows_total", outcome="failed")

CASES: dict[str, Case] = {
    "BatonAvailabilityBurnsFast": Case(
        _requests(80, 20, 120),
        _requests(999, 1, 120),
        fires_too=(_BURST, _NO_RETRIEVAL, _NO_APPLICATION),
        silent_too=(_QUIET, *_ASKED_FOR),
    ),
    "BatonAvailabilityBurnsSlow": Case(_requests(95, 5, 200), _requests(999, 1, 200), "30h", "10m"),
    "BatonTimeToFirstTokenBurnsFast": Case(
        _histogram(_FIRST, "2000.0", 10, 100, 120, model="llama"),
        _histogram(_FIRST, "2000.0", 99, 100, 120, model="llama"),
        silent_too=(_WAITING_ROWS,),
    ),
    "BatonTimeToFirstTokenBurnsSlow": Case(
        _histogram(_FIRST, "2000.0", 80, 100, 200, model="llama"),
        _histogram(_FIRST, "2000.0", 99, 100, 200, model="llama"),
        "30h",
        "10m",
    ),
    "BatonEndToEndBurnsFast": Case(
        _histogram(_WHOLE, "30000.0", 10, 100, 120, **_CHAT), _histogram(_WHOLE, "30000.0", 99, 100, 120, **_CHAT)
    ),
    "BatonEndToEndBurnsSlow": Case(
        _histogram(_WHOLE, "30000.0", 80, 100, 200, **_CHAT),
        _histogram(_WHOLE, "30000.0", 99, 100, 200, **_CHAT),
        "30h",
        "10m",
    ),
    # A budget of a tenth cannot burn 14 times as fast; six times over six hours it can.
    "BatonGroundedAnswersBurnsFast": Case(
        _histogram("ray_baton_grounding", "0.5", 70, 100, 120, profile="default"),
        _histogram("ray_baton_grounding", "0.5", 5, 100, 120, profile="default"),
    ),
    "BatonGroundedAnswersBurnsSlow": Case(
        _histogram("ray_baton_grounding", "0.5", 40, 100, 200, profile="default"),
        _histogram("ray_baton_grounding", "0.5", 5, 100, 200, profile="default"),
        "30h",
        "10m",
    ),
    "BatonLatencySpike": Case(
        {
            _series(f"{_FIRST}_bucket", model="llama", le="500.0"): "0+100x300 30000x6",
            _series(f"{_FIRST}_bucket", model="llama", le="5000.0"): "0+100x307",
            _series(f"{_FIRST}_bucket", model="llama", le="+Inf"): "0+100x307",
        },
        {
            _series(f"{_FIRST}_bucket", model="llama", le="500.0"): "0+100x307",
            _series(f"{_FIRST}_bucket", model="llama", le="5000.0"): "0+100x307",
            _series(f"{_FIRST}_bucket", model="llama", le="+Inf"): "0+100x307",
        },
        "25h30m",
        "5m",
        silent_too=(
            {  # one slow answer in a quiet night
                _series(f"{_FIRST}_bucket", model="llama", le="500.0"): "0+1x300 300x7",
                _series(f"{_FIRST}_bucket", model="llama", le="5000.0"): "0+1x307",
                _series(f"{_FIRST}_bucket", model="llama", le="+Inf"): "0+1x307",
            },
            {
                _series(f"{_FIRST}_bucket", model="llama", priority="batch", le="500.0"): "0+100x300 30000x6",
                _series(f"{_FIRST}_bucket", model="llama", priority="batch", le="5000.0"): "0+100x307",
                _series(f"{_FIRST}_bucket", model="llama", priority="batch", le="+Inf"): "0+100x307",
            },
        ),
    ),
    "BatonErrorRate": Case(
        _requests(90, 10, 120),
        _requests(99, 1, 120),
        fires_too=(_BURST, _NO_RETRIEVAL, _NO_APPLICATION),
        silent_too=(_QUIET, *_ASKED_FOR),
    ),
    "BatonNothingAnswered": Case(
        _ended("answered", "0+60x90 5400x30") | _ended("own_deadline", "0+1x120"),
        _ANSWERED | _ended("own_deadline", "0+20x120"),
    ),
    "BatonShedding": Case(
        {_series("ray_baton_sheds_total", stage="generator"): "0+60x120"},
        {_series("ray_baton_sheds_total", stage="generator"): "0+1x120"},
        fires_too=({_series("ray_baton_sheds_total", stage="generator"): "_x112 500x20"},),
        silent_too=({_series("ray_baton_sheds_total", stage="generator", priority="batch"): "0+60x120"},),
    ),
    "BatonQueueGrowing": Case(
        {_WAITING: "1+2x120", _series("ray_baton_queued", stage="gateway"): "3x120"},
        {_WAITING: "20x120", _series("ray_baton_queued", stage="gateway"): "3x120"},
        silent_too=({_series("ray_baton_queued", stage="gateway", priority="batch"): "1+2x120"},),
    ),
    "BatonGuardrailFailingOpen": Case(
        {_FAILED_OPEN: "_x115 1x10"},
        {_FAILED_OPEN: "1x125"},
        # What was counted while nobody looked comes to light afterwards.
        fires_too=({_FAILED_OPEN: "1x90 _x25 2x10"},),
        silent_too=({_FAILED_OPEN: _GAP}, {_FAILED_OPEN: "1x80 _x32 1x10"}),
    ),
    "BatonBatchRowsFail": Case(_rows(30, 70), _rows(70, 30), silent_too=({**_rows(0, 0), _FAILED_ROWS: "_x115 1x10"},)),
    "BatonConfigRefused": Case({_REFUSED: "1x115 2x10"}, {_REFUSED: "2x125"}, silent_too=({_REFUSED: _GAP},)),
    "BatonConfigDiffers": Case(_versions(8), _versions(7)),
    "BatonIndexShrunk": Case(
        {_PASSAGES: "1000x60 10x70"},
        {_PASSAGES: "1000x60 900x70"},
        fires_too=({_PASSAGES: "1000x60 0x70"},),
        silent_too=({_PASSAGES: "1000x60"},),  # somebody dropped the collection
    ),
    "BatonIndexStale": Case(
        {f"kube_job_status_failed{_JOB}": "1x120"},
        {f"kube_job_status_failed{_JOB}": "1x120", f"kube_job_status_succeeded{_JOB}": "1x120"},
        fires_too=({_renamed(f"kube_job_status_failed{_JOB}"): "1x120"},),
        silent_too=({_renamed(f"kube_job_status_{end}{_JOB}"): "1x120" for end in ("failed", "succeeded")},),
    ),
    "BatonKvCacheFull": Case({_CACHE: "0.99x120", _WAITING: "4x120"}, {_CACHE: "0.99x120", _WAITING: "0x120"}),
    "BatonGatewayDown": Case(
        {_GATEWAY: "1x100 0x30", _GATEWAYS: "6x100 2x30"},
        {_GATEWAY: "1x130", _GATEWAYS: "6x130"},
        fires_too=({_GATEWAY: "1x100", _GATEWAYS: "6x130"}, {_GATEWAY: "1x90", _GATEWAYS: "6x90"}),
        silent_too=(
            {_GATEWAY: "1x100 _x12 1x20", _GATEWAYS: "6x100 _x12 6x20"},
            {_GATEWAYS: "3x130"},  # it has never been up: somebody is just installing it
            {_GATEWAY: "1x100 0x30", _GATEWAYS: "6x130", _GATEWAY.replace("r1", "r2"): "_x90 1x40"},
        ),
    ),
    "BatonApplicationUnhealthy": Case(
        {_series("ray_serve_application_status", application="pipeline"): "2x120"},
        {_series("ray_serve_application_status", application="pipeline"): "5x60 6x60"},
    ),
    "BatonReplicasMissing": Case(
        {_HEALTHY: "1x120", _TARGET: "3x120", _STATUS: "6x120"},
        {_HEALTHY: "1x120", _TARGET: "1x120", _STATUS: "6x120"},
        # All that are wanted are there, and Serve still says that the deployment is not done.
        fires_too=({_HEALTHY: "1x120", _TARGET: "1x120", _STATUS: "3x120"}, {_STATUS: "2x120"}),
        silent_too=({_HEALTHY: "1x120", _TARGET: "1x120", _STATUS: "6x110 3x10"},),
    ),
    "BatonAutoscalerStuck": Case(
        {_PENDING: "1x120"},
        {_PENDING: "1x60 0x60"},
        fires_too=({_renamed(_PENDING): "1x120"},),
        silent_too=({_renamed(_PENDING): "1x60 0x60"}, {_renamed(_PENDING, "other"): "1x120"}),
    ),
    "BatonObjectStoreSpilling": Case(
        {_series("ray_spill_manager_objects_bytes", State="Spilled"): "1000000x120"},
        {
            _series("ray_spill_manager_objects_bytes", State="Spilled"): "0x120",
            _series("ray_spill_manager_objects_bytes", State="Pinned"): "1000000x120",
        },
    ),
    "BatonGpuMemoryCreeping": Case(
        {_USED: "60000+100x200", _FREE: "20000-100x200"}, {_USED: "70000x200", _FREE: "10000x200"}, "10h", "5m"
    ),
    # 0 is no known end.
    "BatonKeyExpires": Case({_KEY: "864000x120", _LASTING: "0x120"}, {_KEY: "8640000x120", _LASTING: "0x120"}),
    "BatonCertificateExpires": Case(
        {_CERTIFICATE: "864000x120"},
        {_CERTIFICATE: "8640000x120"},
        fires_too=({_renamed(_CERTIFICATE): "864000x120"},),
        silent_too=({_renamed(_CERTIFICATE): "8640000x120"}, {_renamed(_CERTIFICATE, "other"): "864000x120"}),
    ),
    "BatonTargetDown": Case(
        {_series("up", instance="10.0.0.1:8080"): "0x120"}, {_series("up", instance="10.0.0.1:8080"): "1x120"}
    ),
    "BatonTargetAbsent": Case(
        {_series("up", job="other"): "1x120"}, {_series("up", instance="10.0.0.1:8080"): "1x120"}
    ),
}
