"""What is recorded of a request on its way through the stages: outcomes and numbers, never a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.api.context import Observed
from app.jobs import ChatJob
from app.messages import Direction, Prompt, Report, Retrieved, Verdict
from app.metrics import Metrics

#: Collections with a row of their own; the passages of all others are added up under ``other``.
_COLLECTIONS = 50
_OTHER = "other"


def labels_of(job: ChatJob | None) -> dict[str, str]:
    """Return profile and variant as metrics name them; both are empty for what is no job, such as embeddings."""
    return {"profile": job.profile if job else "", "variant": job.variant_label if job else ""}


def note_request(metrics: Metrics, seen: Observed) -> None:
    """Count a request at its end, and how long it took."""
    where = {
        "route": seen.route,
        "outcome": seen.outcome,
        "profile": seen.profile,
        "variant": seen.variant,
        "priority": seen.priority,
    }
    metrics.add("baton_requests_total", **where, status=str(seen.status))
    metrics.add("baton_request_milliseconds", seen.seconds * 1000, **where)


def note_verdict(metrics: Metrics, direction: Direction, verdict: Verdict, job: ChatJob | None = None) -> None:
    """Count a verdict's findings, and whether it was given without some rule."""
    labels = {"direction": direction, **labels_of(job)}
    for found in verdict.findings:
        metrics.add("baton_guardrail_total", action=found.action, category=found.category, **labels)
    if not verdict.findings:
        metrics.add("baton_guardrail_total", action="allow", category="none", **labels)
    if verdict.failed_open:
        metrics.add("baton_guardrail_failed_open_total", direction=direction)


def note_retrieved(metrics: Metrics, retrieved: Retrieved) -> None:
    """Record how long a retrieval took, how near its best passage is, or that there is none."""
    for part, milliseconds in retrieved.milliseconds.items():
        metrics.add("baton_retrieval_milliseconds", milliseconds, part=part)
    if retrieved.passages.num_rows == 0:
        metrics.add("baton_retrieval_empty_total")
    else:
        metrics.add("baton_retrieval_score", float(retrieved.passages["score"][0].as_py()))


def note_prompt(metrics: Metrics, prompt: Prompt) -> None:
    """Count what did not fit into a prompt."""
    metrics.add("baton_cut_passages_total", float(prompt.cut_passages))
    metrics.add("baton_cut_turns_total", float(prompt.cut_turns))


def note_report(metrics: Metrics, report: Report, job: ChatJob) -> None:
    """Record how good the answers are that the caller gets."""
    labels = labels_of(job)
    for choice in report.choices:
        if choice.json is not None:
            metrics.add("baton_json_total", status=str(choice.json["status"]), **labels)
        if choice.grounding is not None:
            metrics.add("baton_grounding", choice.grounding, **labels)
        if choice.confidence is not None:
            metrics.add("baton_confidence", choice.confidence, profile=job.profile)


def note_index(metrics: Metrics, collections: Iterable[Mapping[str, Any]], noted: frozenset[str]) -> frozenset[str]:
    """Record the size of each collection; return the names. One of ``noted`` that is gone is forgotten."""
    ranked = sorted(collections, key=lambda found: (-int(found["passages"]), str(found["name"])))
    sizes = {str(found["name"]): (int(found["passages"]), int(found["documents"])) for found in ranked[:_COLLECTIONS]}
    rest = ranked[_COLLECTIONS:]
    if rest:
        sizes[_OTHER] = (sum(int(found["passages"]) for found in rest), sum(int(found["documents"]) for found in rest))
    for name in noted - sizes.keys():
        # Not 0: that is what one holds which lost all of its passages, and somebody has to hear of it.
        metrics.forget("baton_index_passages", collection=name)
        metrics.forget("baton_index_documents", collection=name)
    for name, (passages, documents) in sizes.items():
        metrics.set("baton_index_passages", float(passages), collection=name)
        metrics.set("baton_index_documents", float(documents), collection=name)
    return frozenset(sizes)
