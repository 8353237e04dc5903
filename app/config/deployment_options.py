"""Options of a Serve deployment under Ray's own names, closed: a misspelt or deprecated one is refused here.

Ray takes a deprecated name with a warning in a log that nobody reads, and drops what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator

from app.faults import IMPORT_PATTERN, path_of, sentence_of
from app.scaling import check_targets

#: Names that Ray has given up → what to write in their place.
DEPRECATED: Mapping[str, str] = {
    "max_concurrent_queries": "max_ongoing_requests",
    "target_num_ongoing_requests_per_replica": "target_ongoing_requests",
    "smoothing_factor": "upscaling_factor and downscaling_factor",
    "upscale_smoothing_factor": "upscaling_factor",
    "downscale_smoothing_factor": "downscaling_factor",
    "metrics_interval_s": (
        "the environment variables RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S and "
        "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S"
    ),
}

_INITIAL_REPLICAS = 2
#: Health checks, pages and refusals pass beside the requests that an ingress counts.
_ROOM_FACTOR = 4

Seconds = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class _RayOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=())


#: Baton's own policy for engines, under the two spellings that Ray takes.
ENGINE_POLICIES = tuple(f"app.deployments.engine_policy{mark}EnginePolicy" for mark in ":.")


class PolicyOptions(_RayOptions):
    """An autoscaling policy, as Ray describes it."""

    policy_function: Annotated[str, Field(pattern=IMPORT_PATTERN)]
    """Import path of the function or class."""
    policy_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the class."""

    @model_validator(mode="after")
    def _engine_policy_has_targets(self) -> Self:
        if self.policy_function in ENGINE_POLICIES:
            known = {"targets", "queries", "prometheus_address"}
            for name in sorted(self.policy_kwargs.keys() - known):
                raise ValueError(f"policy_kwargs.{name}: there is no such key: take {', '.join(sorted(known))}")
            check_targets(self.policy_kwargs.get("targets", {}), self.policy_kwargs.get("queries", {}))
        return self


class AutoscalingOptions(_RayOptions):
    """How many replicas a deployment has, by load. Adding or removing it restarts the application's replicas."""

    min_replicas: Annotated[int, Field(ge=0)] = 1
    """Fewest replicas; 0 lets an idle model give its GPUs back."""
    max_replicas: Annotated[int, Field(ge=1)] = 10
    """Most replicas."""
    initial_replicas: Annotated[int, Field(ge=0)] | None = None
    """Replicas at the first deployment; unset: 2, or what min_replicas and max_replicas allow."""
    target_ongoing_requests: Positive = 5
    """Requests per replica to aim at; it must be below max_ongoing_requests, or load never reaches it."""
    upscale_delay_s: Seconds = 30
    """How long load must be above the target before replicas are added."""
    downscale_delay_s: Seconds = 300
    """How long load must be below the target before replicas are removed."""
    downscale_to_zero_delay_s: Seconds | None = None
    """The same for the last replica; unset: downscale_delay_s."""
    upscaling_factor: Positive = 1.5
    """How boldly to add replicas."""
    downscaling_factor: Positive = 0.7
    """How boldly to remove them."""
    look_back_period_s: Positive = 30
    """Over how long load is averaged."""
    aggregation_function: Literal["mean", "max", "min"] | None = None
    """How load is aggregated over that time."""
    policy: PolicyOptions | None = None
    """What to scale by instead of target_ongoing_requests; a change restarts the application's replicas."""

    def filled(self) -> dict[str, Any]:
        """Return all options with their defaults, as Serve takes them."""
        initial = self.initial_replicas
        if initial is None:
            initial = min(max(_INITIAL_REPLICAS, self.min_replicas), self.max_replicas)
        policy = {} if self.policy is None else {"policy": self.policy.model_dump(exclude_unset=True)}
        return {**self.model_dump(exclude_none=True), "initial_replicas": initial, **policy}


class ActorOptions(_RayOptions):
    """What one replica takes of a node."""

    num_cpus: Annotated[float, Field(ge=0)] | None = None
    """Logical CPUs."""
    num_gpus: Annotated[float, Field(ge=0)] | None = None
    """GPUs; a fraction shares one."""
    memory: Positive | None = None
    """Memory in bytes that is set aside in the scheduler's books."""
    resources: dict[str, float] | None = None
    """Resources of your own, as a worker group's rayResources offers them."""
    accelerator_type: str | None = None
    """Kind of accelerator that the node must have."""
    label_selector: dict[str, str] | None = None
    """Labels that the Ray node must have."""
    runtime_env: dict[str, Any] | None = None
    """Runtime environment of the replicas alone."""


class DeploymentOptions(_RayOptions):
    """Options of one deployment."""

    num_replicas: Annotated[int, Field(ge=0)] | None = None
    """A fixed number of replicas; not together with autoscaling_config."""
    max_ongoing_requests: Annotated[int, Field(ge=1)] | None = None
    """Requests that one replica works on at once."""
    max_queued_requests: Annotated[int, Field(ge=-1)] | None = None
    """Requests that may wait for a replica; -1: any number."""
    autoscaling_config: AutoscalingOptions | None = None
    """Replicas by load."""
    ray_actor_options: ActorOptions | None = None
    """What a replica takes of a node."""
    health_check_period_s: Positive | None = None
    """How often a replica's health is asked; Ray's default is 10."""
    health_check_timeout_s: Positive | None = None
    """How long it may take to answer; Ray's default is 30."""
    graceful_shutdown_wait_loop_s: Seconds | None = None
    """How often a stopping replica looks whether its requests are done; Ray's default is 2."""
    graceful_shutdown_timeout_s: Seconds | None = None
    """How long it may take to finish them; then they are cut off. Models that scale by load take 90, Ray's default is
    20."""
    placement_group_bundles: list[dict[str, float]] | None = None
    """Resources of each process of a replica."""
    placement_group_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] | None = None
    """How those lie on nodes."""
    max_replicas_per_node: Annotated[int, Field(ge=1, le=100)] | None = None
    """Most replicas on one node."""
    max_surge_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Replicas beyond the target while an update rolls; above 0 new ones serve before old ones stop. Stages and the
    gateway take 100 unless they use GPUs, Ray's default is 0."""
    rolling_update_percentage: Annotated[float, Field(gt=0, le=100)] | None = None
    """Share of replicas that an update replaces at once."""


def ingress_room(at_once: int, waiting: int = 0) -> int:
    """Return Serve's own limit for an ingress that works on ``at_once`` requests while ``waiting`` more may wait.

    Such an ingress sheds by itself, in OpenAI's shape and with Retry-After: Serve's limit must not bite first.
    """
    return _ROOM_FACTOR * (at_once + max(0, waiting))


def _deprecation(raw: Mapping[str, Any]) -> str | None:
    autoscaling = raw.get("autoscaling_config")
    for place, found in (("", raw), ("autoscaling_config.", autoscaling if isinstance(autoscaling, dict) else {})):
        for name, instead in DEPRECATED.items():
            if name in found:
                return f"{place}{name} is deprecated in Ray: use {instead}"
    return None


def check_options(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the options as Serve takes them, with the defaults of ``autoscaling_config`` filled in.

    Raises ValueError with a sentence that names the option.
    """
    if told := _deprecation(raw):
        raise ValueError(told)
    try:
        options = DeploymentOptions.model_validate(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ValueError(f"{path_of(fault['loc'])}: {sentence_of(fault)}") from None
    if options.num_replicas is not None and options.autoscaling_config is not None:
        raise ValueError("num_replicas and autoscaling_config exclude each other: drop one of them")
    if options.autoscaling_config is None:
        return raw
    return {**raw, "autoscaling_config": options.autoscaling_config.filled()}


def without_references(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a JSON schema with each reference replaced by what it refers to."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return without_references(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
        return {key: without_references(value, definitions) for key, value in schema.items() if key != "$defs"}
    if isinstance(schema, list):
        return [without_references(value, definitions) for value in schema]
    return schema


def _schema() -> dict[str, Any]:
    raw = DeploymentOptions.model_json_schema()
    found: dict[str, Any] = without_references(raw, raw["$defs"])
    return found


#: Options of a deployment as a mapping, checked.
Options = Annotated[dict[str, Any], AfterValidator(check_options), WithJsonSchema(_schema())]
