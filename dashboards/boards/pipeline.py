"""Which stage is slow, what a hop costs, what each stage does: a row per stage, under the stages' own names."""

from __future__ import annotations

from dashboards.board import Board, Panel, Row
from dashboards.boards.asks import VARIANT, largest, quantile, quantiles, rate, total


def _stage(stage: str) -> Panel:
    return Panel(
        f"Time in the {stage}",
        "Per request, as the gateway waits for it: work, and where it is a deployment of its own Serve's hop.",
        "ms",
        quantiles("ray_baton_stage_milliseconds", f'stage="{stage}"'),
    )


def _queue(stage: str) -> Panel:
    return Panel(
        f"Wait for the {stage}",
        "In the gateway's process, before the stage takes the request.",
        "ms",
        quantiles("ray_baton_queue_milliseconds", f'stage="{stage}"'),
    )


def _deployment(deployment: str) -> Panel:
    return Panel(
        f"Serve: {deployment}",
        "99th percentile of Serve's own processing latency, where the stage is a deployment of its own.",
        "ms",
        (
            (quantile(0.99, "ray_serve_deployment_processing_latency_ms", f'deployment="{deployment}"'), "p99"),
            (
                quantile(0.5, "ray_serve_deployment_processing_latency_ms", f'deployment="{deployment}"'),
                "p50",
            ),
        ),
    )


_ALL = Row(
    "All stages",
    (
        Panel(
            "95th percentile by stage",
            "The stage that went up is the one to look at below.",
            "ms",
            ((quantile(0.95, "ray_baton_stage_milliseconds", by=("stage",)), "{{stage}}"),),
        ),
        Panel(
            "At work and waiting",
            "In the gateway's process, by stage.",
            "none",
            (
                (total("ray_baton_ongoing", by=("stage",)), "{{stage}} at work"),
                (total("ray_baton_queued", by=("stage",)), "{{stage}} waiting"),
            ),
        ),
        Panel(
            "Trouble by stage",
            "Requests shed for a full queue, late, cancelled, and sent again: the stage was full, or a replica died.",
            "reqps",
            tuple(
                (rate(f"ray_baton_{kind}_total", by=("stage",)), f"{{{{stage}}}} {kind}")
                for kind in ("sheds", "timeouts", "cancels", "retries")
            ),
        ),
    ),
)
_MODELS = 'stage="generator"'
_CLASSES = (
    Panel(
        "Wait for a model by priority class",
        "95th percentile, from the request until a place of the model's engine is free.",
        "ms",
        ((quantile(0.95, "ray_baton_queue_milliseconds", _MODELS, by=("priority",)), "{{priority}}"),),
    ),
    Panel(
        "Jobs of the models by priority class",
        "Those that hold a place of an engine, and those that wait for one in the gateway.",
        "none",
        (
            (total("ray_baton_ongoing", _MODELS, by=("priority",)), "{{priority}} at work"),
            (total("ray_baton_queued", _MODELS, by=("priority",)), "{{priority}} waiting"),
        ),
    ),
    Panel(
        "Shed by priority class",
        "The lowest class goes first; the highest is shed only when nothing below it waits.",
        "reqps",
        ((rate("ray_baton_sheds_total", by=("priority", "stage")), "{{priority}} {{stage}}"),),
    ),
)
_HOPS = Row(
    "Hops",
    (
        Panel(
            "Hop: 95th percentile",
            "From the sending of the payload until its consumer can read it. `shared` is mapped, `inline` is a copy.",
            "ms",
            ((quantile(0.95, "ray_baton_handoff_milliseconds", by=("hop", "path")), "{{hop}} {{path}}"),),
        ),
        Panel(
            "Payload bytes",
            "Handed from stage to stage.",
            "Bps",
            ((rate("ray_baton_handoff_bytes_total", by=("hop", "path")), "{{hop}} {{path}}"),),
        ),
        Panel(
            "Payloads",
            "Large ones should all be `shared`.",
            "ops",
            ((rate("ray_baton_handoffs_total", by=("hop", "path")), "{{hop}} {{path}}"),),
        ),
    ),
)
_GUARDRAIL = (
    _stage("guardrail"),
    Panel(
        "Findings by category and direction",
        "`allow none` is a verdict without findings; the text is never recorded.",
        "ops",
        (
            (
                rate("ray_baton_guardrail_total", VARIANT, by=("direction", "action", "category")),
                "{{direction}} {{action}} {{category}}",
            ),
        ),
    ),
    Panel(
        "Failing open",
        "Texts that passed without a full verdict: a rule could not be evaluated.",
        "ops",
        ((rate("ray_baton_guardrail_failed_open_total", by=("direction",)), "{{direction}}"),),
    ),
)
_RETRIEVER = (
    _stage("retriever"),
    Panel(
        "Embedding and search",
        "95th percentile of each part.",
        "ms",
        ((quantile(0.95, "ray_baton_retrieval_milliseconds", by=("part",)), "{{part}}"),),
    ),
    Panel(
        "Best score",
        "Cosine of the best passage of a retrieval; a fall means questions that the collections do not answer.",
        "none",
        quantiles("ray_baton_retrieval_score"),
    ),
    Panel(
        "Empty retrievals",
        "Retrievals that found no passage.",
        "ops",
        ((rate("ray_baton_retrieval_empty_total", by=("job",)), "empty"),),
    ),
    Panel(
        "Index",
        "Passages and documents of each collection.",
        "short",
        (
            (largest("ray_baton_index_passages", by=("collection",)), "{{collection}} passages"),
            (largest("ray_baton_index_documents", by=("collection",)), "{{collection}} documents"),
        ),
    ),
    Panel(
        "Questions embedded together",
        "Size of Serve's batches.",
        "none",
        quantiles("ray_serve_actual_batch_size", 'deployment="retriever"'),
    ),
    _deployment("retriever"),
)
_ASSEMBLER = (
    _stage("assembler"),
    Panel(
        "Cut",
        "Passages and turns left out because the model's window was full.",
        "ops",
        (
            (rate("ray_baton_cut_passages_total", by=("job",)), "passages"),
            (rate("ray_baton_cut_turns_total", by=("job",)), "turns"),
        ),
    ),
)
_GENERATOR = (
    _stage("generator"),
    Panel(
        "Between two pieces",
        "Mean of each answer; the engine's board has its own count.",
        "ms",
        quantiles("ray_baton_inter_token_milliseconds"),
    ),
)

BOARD = Board(
    "baton-pipeline",
    "Baton / Pipeline",
    "Which stage is slow, and what a hop costs.",
    (
        _ALL,
        _HOPS,
        Row("gateway", (_queue("gateway"), _deployment("gateway"), *_CLASSES)),
        Row("guardrail", _GUARDRAIL),
        Row("retriever", _RETRIEVER),
        Row("assembler", _ASSEMBLER),
        Row("generator", _GENERATOR),
        Row("postprocessor", (_stage("postprocessor"), _deployment("postprocessor"))),
    ),
)
