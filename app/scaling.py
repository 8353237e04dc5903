"""How many replicas an engine's load asks for; ``app/deployments/engine_policy.py`` asks on Serve's behalf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: What an engine's replica tells of itself; ``ongoing`` Serve counts: requests at work and in its queues.
SIGNALS = ("ongoing", "running", "waiting", "kv_cache", "requests_per_second")


def check_targets(targets: Any, queries: Any) -> None:
    """Raise ValueError with a sentence for targets that nothing can be held to."""
    for key, found in (("targets", targets), ("queries", queries)):
        if not isinstance(found, Mapping):
            raise ValueError(f"{key} must be a mapping with a number per entry")
        for name, value in found.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{key}.{name} must be a number above 0")
    unknown = sorted(set(targets) - set(SIGNALS))
    if unknown:
        raise ValueError(f"targets.{unknown[0]}: there is no such signal: take one of {', '.join(SIGNALS)}")
    if targets.get("kv_cache", 0) > 1:
        raise ValueError("targets.kv_cache is the used share of the KV cache: it must be at most 1")
    if not targets and not queries:
        raise ValueError("targets and queries are empty: name a signal and how much of it one replica should have")


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a deployment's load.

    ``ongoing`` requests are at work and in Serve's queues, of which a replica should have ``target_ongoing``.
    ``measured`` holds signal → replica → value, ``totals`` the target and the value of each number counted over all.
    """

    replicas: int
    ongoing: float
    target_ongoing: float
    measured: Mapping[str, Mapping[Any, float]] = field(default_factory=dict)
    totals: Sequence[tuple[float, float]] = ()


def wanted_replicas(seen: Seen, targets: Mapping[str, float]) -> float:
    """Return the number of replicas by the signal that asks for most; whatever is at work keeps one.

    An engine that has not computed anything yet tells nothing: until it does, the ongoing requests decide.
    """
    wishes = [total / target for target, total in seen.totals]
    for name, target in targets.items():
        values = list(seen.measured.get(name, {}).values())
        if name == "ongoing":
            wishes.append(seen.ongoing / target)
        elif values:
            wishes.append(seen.replicas * sum(values) / len(values) / target)
    least = 1.0 if seen.ongoing > 0 else 0.0
    return max(least, max(wishes, default=seen.ongoing / seen.target_ongoing))
