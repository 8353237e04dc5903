"""What a rollout changes, as the runner sees it: a RayService, or a pipeline on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.config.rollout import Plan
from app.errors import BatonError, ConfigError, bounded
from app.ops.rollout.state import Entry, Options, Settings, State

#: The deployments whose keys a rollout owns.
_GATEWAY, _GENERATOR = "gateway", "generator"
_PIPELINE = "pipeline"
_SCALING = ("min_replicas", "max_replicas", "initial_replicas")


class Held(BatonError):
    """The rollout stopped without a decision; what is in force stays in force."""

    code = "rollout_held"


class Stale(Exception):
    """What was read is no longer what is there: read again."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading: settings in force, the stored state, the status of applications, and what a write depends on."""

    settings: Settings
    state: State | None = None
    applications: Mapping[str, str] = field(default_factory=dict)
    token: Any = None


class Target(Protocol):
    """Where settings and state are kept. Every method raises StageUnavailable where it does not answer."""

    @property
    def atomic(self) -> bool:
        """Whether record and settings change together, so that there is never one without the other."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Keep other runners away within the block. Raises :class:`Held` where there is one."""
        ...

    def renew(self) -> None:
        """Tell others that this runner lives. Raises :class:`Held` where another one took over."""
        ...

    def read(self, plan: Plan | State) -> Snapshot:
        """Return what is there. Raises ConfigError where profile or variants are not."""
        ...

    def write(self, snapshot: Snapshot, state: State) -> None:
        """Store a state and put its settings into force. Raises :class:`Stale` where the snapshot is out of date."""
        ...

    def announce(self, state: State, entry: Entry) -> None:
        """Tell the world a line of the history. The same line twice does no harm."""
        ...


def settings_of(config: Mapping[str, Any], plan: Plan | State) -> Settings:
    """Return the settings that a rollout owns from a Serve configuration. Raises ConfigError."""
    weights = {name: float(_variant(config, plan, name).get("weight", 0.0)) for name in (plan.stable, plan.canary)}
    names = _applications(plan)
    return Settings(weights=weights, replicas={name: _options(config, name) for name in names})


def put_settings(config: Mapping[str, Any], plan: Plan | State, settings: Settings) -> None:
    """Put settings into a Serve configuration, in place; nothing else of it changes. Raises ConfigError."""
    for name, weight in settings.weights.items():
        _variant(config, plan, name)["weight"] = weight
    for name, options in settings.replicas.items():
        deployment = _deployment(config, name, _GENERATOR)
        if "num_replicas" in options:
            deployment["num_replicas"] = options["num_replicas"]
        else:
            kept = {key: value for key, value in deployment["autoscaling_config"].items() if key not in _SCALING}
            deployment["autoscaling_config"] = {**kept, **options}


def _concerned(config: Mapping[str, Any], plan: Plan | State) -> list[str]:
    """Return the applications that have to run: the pipeline, the canary's model, and both of blue and green."""
    found = [_PIPELINE, *_applications(plan)]
    live = _deployment(config, _PIPELINE, _GATEWAY).get("user_config") or {}
    variant = _variant(config, plan, plan.canary)
    profile = (live.get("profiles") or {}).get(variant.get("profile") or plan.profile) or {}
    # What follows a colon is an adapter of the model.
    model = str(variant.get("model") or profile.get("model")).partition(":")[0]
    served = (application(config, _PIPELINE).get("args") or {}).get("models") or {}
    if model in served:
        found.append(served[model]["application"])
    return list(dict.fromkeys(found))


def ailing(
    config: Mapping[str, Any], plan: Plan | State, statuses: Mapping[str, Mapping[str, Any]], deployments: str
) -> dict[str, str]:
    """Return what is not running, by application; ``deployments`` is the key that Ray or KubeRay keeps them under.

    Replicas count where the rollout sets them; elsewhere they may come and go with the load.
    """
    found = {}
    pinned = _applications(plan)
    for name in _concerned(config, plan):
        status = statuses.get(name) or {}
        parts = (status.get(deployments) or {}).values() if name in pinned else ()
        states = [str(part.get("status")) for part in parts]
        whole = str(status.get("status") or "not there")
        if whole != "RUNNING":
            found[name] = whole.lower()
        elif any(state != "HEALTHY" for state in states):
            found[name] = ", ".join(state.lower() for state in states if state != "HEALTHY")
    return found


def application(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an application of a Serve configuration. Raises ConfigError."""
    found: dict[str, Any]
    for found in config.get("applications") or []:
        if found.get("name") == name:
            return found
    raise ConfigError(f"There is no application {bounded(name)}: add the model to `models`, and install it first.")


def _applications(plan: Plan | State) -> list[str]:
    if isinstance(plan, Plan):
        return [plan.blue_green.old, plan.blue_green.new] if plan.blue_green else []
    return list(plan.first.replicas)


def _deployment(config: Mapping[str, Any], owner: str, name: str) -> dict[str, Any]:
    found: dict[str, Any]
    for found in application(config, owner).get("deployments") or []:
        if found.get("name") == name:
            return found
    raise ConfigError(f"The application {bounded(owner)} has no deployment {name}: is it one of Baton's?")


def _options(config: Mapping[str, Any], name: str) -> Options:
    deployment = _deployment(config, name, _GENERATOR)
    scaling = deployment.get("autoscaling_config")
    if scaling:
        return {key: int(scaling[key]) for key in _SCALING if scaling.get(key) is not None}
    return {"num_replicas": int(deployment.get("num_replicas") or 1)}


def _variant(config: Mapping[str, Any], plan: Plan | State, name: str) -> dict[str, Any]:
    settings = _deployment(config, _PIPELINE, _GATEWAY).get("user_config") or {}
    profile = (settings.get("routing") or {}).get(plan.profile)
    if not isinstance(profile, dict):
        raise ConfigError(
            f"settings.routing has no profile {bounded(plan.profile)}: give it variants there, and apply that first."
        )
    found = (profile.get("variants") or {}).get(name)
    if not isinstance(found, dict):
        known = ", ".join(sorted(profile.get("variants") or {})) or "none"
        raise ConfigError(
            f"settings.routing.{plan.profile}.variants has no {bounded(name)} (it has {known}): correct the plan, or "
            "add the variant with weight 0."
        )
    return found
