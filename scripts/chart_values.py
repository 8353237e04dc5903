"""Writes values.yaml from the Pydantic models: one comment and one default per key."""

from __future__ import annotations

import textwrap

from app.config.chart.pods import DEFAULT_GROUPS, WorkerGroup
from app.config.chart.values import ChartValues
from scripts.chart_rows import GROUPS, Row, flow, plain, rows

_HEADER = """\
# Values of the chart baton. Written by `make generate` from app/config/chart; change the models, not this file.
#
# They stand in three groups, by what a change sets off when it reaches a running release with `helm upgrade`. Whole
# install shapes to start from: ci/*-values.yaml. Names of fields inside `engine`, `options` and Kubernetes' structures
# are those of ray.serve.llm, Ray Serve and Kubernetes, verbatim.
"""
_EXAMPLES = {
    "models": """\
# models:
#   llama:
#     engine:
#       model_loading_config: {model_id: llama, model_source: meta-llama/Llama-3.1-8B-Instruct}
#       engine_kwargs: {max_model_len: 8192}
#     options: {max_ongoing_requests: 64, autoscaling_config: {min_replicas: 1, max_replicas: 2}}
""",
    "settings.profiles": """\
# profiles:
#   default:
#     model: llama
#     retrieval: {enabled: true, collections: [docs], topK: 4}
""",
    "rollout.plan": """\
# plan:
#   name: llama-4
#   profile: default
#   stable: current
#   canary: candidate
#   steps: [{share: 5, seconds: 600}, {share: 25, seconds: 1800}, {share: 50, seconds: 1800}]
#   gates: [{gate: errors, bound: 0.02}, {gate: latencyP95, bound: 1.5, relative: true}]
""",
    "batch": """\
# batch:
#   nightly:
#     input: /batch/{date}.jsonl
#     output: /batch/{date}-answers.jsonl
#     schedule: "0 1 * * *"
#     volume: {persistentVolumeClaim: {claimName: batches}}
""",
    "collections": """\
# collections:
#   docs: {path: /opt/baton/samples/docs}
""",
}


def values_yaml() -> str:
    """Return the text of values.yaml."""
    lines = [_HEADER]
    for title, names in GROUPS.items():
        lines += ["", "# " + "-" * 116, f"# {title}", "# " + "-" * 116]
        for row in rows(ChartValues(), names=names):
            lines += _lines(row)
    return "\n".join(lines) + "\n"


def _lines(row: Row) -> list[str]:
    indent = "  " * (len(row.path) - 1)
    out = [""] if len(row.path) == 1 else []
    out += [f"{indent}# {line}" for line in textwrap.wrap(row.description, 116 - len(indent))]
    out += [indent + line for line in _EXAMPLES.get(".".join(row.path), "").splitlines()]
    key = row.path[-1]
    if row.unset:
        return [*out, f"{indent}# {key}:"]
    if row.path == ("workerGroups",):
        return [*out, f"{key}:", *_groups()]
    return [*out, f"{indent}{key}:" if row.nested else f"{indent}{key}: {flow(row.default)}"]


def _groups() -> list[str]:
    """The first group with every key and its comment, further ones with what differs from the defaults of a group."""
    out = []
    for row in rows(DEFAULT_GROUPS[0]):
        out += ["    " + line for line in _lines(row) if line]
    out[0] = out[0].replace("    #", "  - #", 1)
    usual = plain(WorkerGroup(name="x"))
    for group in DEFAULT_GROUPS[1:]:
        differing = {key: value for key, value in plain(group).items() if usual.get(key) != value}
        out.append(f"  - {flow(differing)}")
    return out
