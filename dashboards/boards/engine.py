"""What the engines do: vLLM's own metrics, as Ray exports them, and Serve's of the generators."""

from __future__ import annotations

from dashboards.board import SCOPE, WINDOW, Board, Panel, Row
from dashboards.boards.asks import largest, quantile, rate, total

_BY = ("model_name",)
_GENERATOR = 'deployment="generator"'


def _p95(title: str, description: str, histogram: str) -> Panel:
    return Panel(
        title,
        description,
        "s",
        (
            (quantile(0.95, histogram, by=_BY), "{{model_name}} p95"),
            (quantile(0.5, histogram, by=_BY), "{{model_name}} p50"),
        ),
    )


def _summed(metric: str) -> str:
    return f"sum by (model_name) (rate({metric}{{{SCOPE}}}[{WINDOW}]))"


_LOAD = (
    Panel(
        "Running and waiting",
        "Requests in the engine's batch, and those that wait for room in it.",
        "none",
        (
            (total("ray_vllm_num_requests_running", by=_BY), "{{model_name}} running"),
            (total("ray_vllm_num_requests_waiting", by=_BY), "{{model_name}} waiting"),
        ),
    ),
    Panel(
        "KV cache in use",
        "Of the fullest replica; near 100 % requests wait or are preempted.",
        "percentunit",
        ((largest("ray_vllm_kv_cache_usage_perc", by=_BY), "{{model_name}}"),),
    ),
    Panel(
        "Prefix cache hits",
        "Share of the prompt tokens looked up that were there.",
        "percentunit",
        (
            (
                f"{_summed('ray_vllm_prefix_cache_hits_total')} / {_summed('ray_vllm_prefix_cache_queries_total')}",
                "{{model_name}}",
            ),
        ),
    ),
    Panel(
        "Tokens",
        "Prompt tokens read and tokens generated.",
        "short",
        (
            (rate("ray_vllm_prompt_tokens_total", by=_BY), "{{model_name}} prompt /s"),
            (rate("ray_vllm_generation_tokens_total", by=_BY), "{{model_name}} generated /s"),
        ),
    ),
    Panel(
        "Finished requests",
        "By why they ended; `abort` is a caller who hung up.",
        "reqps",
        (
            (
                rate("ray_vllm_request_success_total", by=("model_name", "finished_reason")),
                "{{model_name}} {{finished_reason}}",
            ),
        ),
    ),
    Panel(
        "Tokens per step",
        "How much the engine gets into one batch.",
        "none",
        ((quantile(0.95, "ray_vllm_iteration_tokens_total", by=_BY), "{{model_name}} p95"),),
    ),
    Panel(
        "Preemptions",
        "Requests put out of the batch because the KV cache was full; they are computed again.",
        "ops",
        (
            (
                # vLLM tells of none before the first.
                f"{_summed('ray_vllm_num_preemptions_total')} or 0 * {total('ray_vllm_num_requests_running', by=_BY)}",
                "{{model_name}}",
            ),
        ),
    ),
)
_TIMES = (
    _p95("Time to first token", "Inside the engine.", "ray_vllm_time_to_first_token_seconds"),
    _p95("Between two tokens", "Inside the engine.", "ray_vllm_inter_token_latency_seconds"),
    _p95("Queue", "Wait for a place in the batch.", "ray_vllm_request_queue_time_seconds"),
    _p95("Prefill", "Reading the prompt.", "ray_vllm_request_prefill_time_seconds"),
    _p95("Decode", "Generating the answer.", "ray_vllm_request_decode_time_seconds"),
    _p95("Whole request", "Inside the engine, from its arrival to its end.", "ray_vllm_e2e_request_latency_seconds"),
)
_SERVE = (
    Panel(
        "Requests by model application",
        "Calls of Serve's generator deployments.",
        "reqps",
        ((rate("ray_serve_deployment_request_counter_total", _GENERATOR, by=("application",)), "{{application}}"),),
        width=8,
    ),
    Panel(
        "99th percentile by model application",
        "Serve's processing latency, streams to their end.",
        "ms",
        (
            (
                quantile(0.99, "ray_serve_deployment_processing_latency_ms", _GENERATOR, by=("application",)),
                "{{application}}",
            ),
        ),
        width=8,
    ),
    Panel(
        "Ongoing by model application",
        "Calls at work in the replicas.",
        "none",
        ((total("ray_serve_replica_processing_queries", _GENERATOR, by=("application",)), "{{application}}"),),
        width=8,
    ),
    Panel(
        "Errors by model application",
        "Calls that raised; a caller who hung up is a `CancelledError`.",
        "reqps",
        (
            (
                rate("ray_serve_deployment_error_counter_total", _GENERATOR, by=("application", "exception_type")),
                "{{application}} {{exception_type}}",
            ),
        ),
        width=12,
    ),
    Panel(
        "Engine replicas",
        "Healthy ones, and starts since the cluster began.",
        "none",
        (
            (total("ray_serve_deployment_replica_healthy", _GENERATOR, by=("application",)), "{{application}} healthy"),
            (
                total("ray_serve_deployment_replica_starts_total", _GENERATOR, by=("application",)),
                "{{application}} starts",
            ),
        ),
        width=12,
    ),
)

BOARD = Board(
    "baton-engine",
    "Baton / Engine",
    "What the engines are busy with.",
    (Row("Load", _LOAD), Row("Times", _TIMES), Row("Serve", _SERVE)),
)
