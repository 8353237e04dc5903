"""All values of the chart, grouped by what a change sets off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.config.base import Config
from app.config.chart.kinds import EnvName, EnvValue, Labels, Texts
from app.config.chart.objects import (
    AuthValues,
    CollectionValues,
    DisruptionValues,
    DoctorValues,
    FaultToleranceValues,
    GatewayValues,
    GrpcValues,
    JobValues,
    NetworkPolicyValues,
    RolloutValues,
    TestValues,
    UpgradeValues,
)
from app.config.chart.observability import ObservabilityValues
from app.config.chart.pods import (
    DEFAULT_GROUPS,
    AutoscalerValues,
    HeadValues,
    ImageValues,
    IndexValues,
    LogCollectorValues,
    ModelCacheValues,
    SecretKey,
    SecurityValues,
    ServiceAccountValues,
    WorkerGroup,
)
from app.config.deployment_options import Options, check_options
from app.config.embedder import EmbedderConfig
from app.config.engine import Engine, RuntimeEnv
from app.config.pipeline import PipelineParts, PipelineSettings
from app.config.profile import CollectionName, Count, Name, ProfileConfig
from app.config.retrieval import StoreConfig

#: Names of models: `model-<name>` is an application's name, which has at most 64 characters.
ModelName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,57}$")]


class ModelValues(Config):
    """A model: a Serve application of its own, called `model-<name>`."""

    engine: Engine
    """`LLMConfig` of ray.serve.llm, verbatim: a change restarts this model."""
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Environment of the engine's processes: a change restarts this model."""
    options: Options = Field(default_factory=dict)
    """Options of the deployment `generator` under Ray's own names: most change in place."""
    tokenizer: str = ""
    """Folder or id of tokenizer and chat template; empty: the engine's model."""
    chat_template: str | None = None
    """File with the chat template, where the engine was given another one than the model's own."""
    context_tokens: Count | None = None
    """The window in tokens; unset: the engine's max_model_len."""
    tools: bool = False
    """Whether the engine was started with a tool-call parser."""
    images: bool = False
    """Whether the model reads images."""
    image_tokens: Count = 1024
    """Tokens that one image is counted as: as many as the model makes of one at most."""
    description: str = ""
    """One sentence for `GET /v1/models`."""


class ChartPipeline(PipelineParts):
    """What shapes the pipeline's deployments. A change restarts the pipeline's replicas, never an engine."""

    embedder: EmbedderConfig = EmbedderConfig(source="BAAI/bge-m3", local_files_only=False)
    """The encoder of retriever and postprocessor."""
    store: StoreConfig = StoreConfig(uri="/data/index")
    """Where collections live."""


class ChartSettings(PipelineSettings):
    """What changes in place, with nothing restarted."""

    profiles: dict[Name, ProfileConfig] = Field(default_factory=dict)
    """Profiles by name. Where there is none and one model, the profile `default` asks that model without retrieval."""


class ChartValues(Config):
    """The values of the chart."""

    name_override: str = Field(default="", pattern=r"^[-a-z0-9]*$")
    """In place of the chart's name in names of objects. A change makes all objects anew, with an outage."""
    fullname_override: str = Field(default="", pattern=r"^[-a-z0-9]*$")
    """In place of release and chart name in names of objects. A change makes all objects anew, with an outage."""
    common_labels: Labels = Field(default_factory=dict)
    """Labels of every object, never of the Ray cluster's pods."""
    common_annotations: Texts = Field(default_factory=dict)
    """Annotations of every object, never of the Ray cluster's pods."""

    settings: ChartSettings = ChartSettings()
    """What changes in place."""
    collections: dict[CollectionName, CollectionValues] = Field(default_factory=dict)
    """Documents to index by a Job, by collection."""
    gateway: GatewayValues = GatewayValues()
    """The way in."""
    network_policy: NetworkPolicyValues = NetworkPolicyValues()
    """Who may reach the pods."""
    pod_disruption_budget: DisruptionValues = DisruptionValues()
    """Budgets for evictions."""
    upgrade: UpgradeValues = UpgradeValues()
    """How a cluster is replaced."""
    doctor: DoctorValues = DoctorValues()
    """A check before the install."""
    rollout: RolloutValues = RolloutValues()
    """A canary's way to all the traffic."""
    test: TestValues = TestValues()
    """What `helm test` asks."""
    jobs: JobValues = JobValues()
    """On which nodes Jobs (index, preload, doctor, rollout) and the Pod of `helm test` run. A change runs the Jobs
    again: a Job cannot be changed."""
    observability: ObservabilityValues = ObservabilityValues()
    """Monitors, alert rules and boards."""
    extra_objects: list[dict[str, Any] | str] = Field(default_factory=list)
    """Further objects, as maps or as templates in text."""

    models: dict[ModelName, ModelValues] = Field(default_factory=dict)
    """Models by name; none: the one of files/starter.yaml."""
    pipeline: ChartPipeline = ChartPipeline()
    """What shapes the pipeline."""
    runtime_env: RuntimeEnv = Field(default_factory=dict)
    """Ray's runtime_env of all applications, verbatim: a change restarts all of them."""

    image: ImageValues = ImageValues()
    """The image."""
    ray_version: str = Field(default="2.60.0", pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    """Version of Ray in the image."""
    grpc: GrpcValues = GrpcValues()
    """gRPC beside HTTP; Serve's proxies read it once, when they start."""
    head: HeadValues = HeadValues()
    """The head pod."""
    worker_groups: tuple[WorkerGroup, ...] = DEFAULT_GROUPS
    """Groups of worker pods."""
    autoscaling: AutoscalerValues = AutoscalerValues()
    """Ray's autoscaler."""
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Environment of all pods, over what the chart sets."""
    secret_env: dict[EnvName, SecretKey] = Field(default_factory=dict)
    """Environment of all Ray pods from Secrets. Of Jobs, preload gets all of it and a rollout PROMETHEUS_TOKEN."""
    index: IndexValues = IndexValues()
    """Where the embedded index lies."""
    model_cache: ModelCacheValues = ModelCacheValues()
    """Where model files lie."""
    gcs_fault_tolerance: FaultToleranceValues = FaultToleranceValues()
    """Keeps the cluster's state."""
    auth: AuthValues = AuthValues()
    """The Secrets of API keys."""
    log_collector: LogCollectorValues = LogCollectorValues()
    """Ships the logs."""
    service_account: ServiceAccountValues = ServiceAccountValues()
    """The service account."""
    security: SecurityValues = SecurityValues()
    """The security context."""

    @model_validator(mode="after")
    def _names_of_groups_differ(self) -> Self:
        names = [group.name for group in self.worker_groups]
        if len(names) != len(set(names)):
            raise ValueError("two workerGroups have the same name; give each its own")
        return self


def completed(raw: Mapping[str, Any], starter: Mapping[str, Any]) -> ChartValues:
    """Return the values with what follows from them filled in, as the chart does. Raises ConfigError.

    ``starter`` stands for ``models`` where none is named. A model without options gets the default autoscaling, and
    one model without a profile the profile ``default``.
    """
    known = {key: value for key, value in raw.items() if key not in {"global", "enabled"}}
    if not known.get("models"):
        known["models"] = starter
    defaults = ChartValues().model_dump(mode="json", by_alias=True, exclude_none=True)
    values = ChartValues.parse(filled(defaults, known), "values")
    models = {name: _with_options(model) for name, model in values.models.items()}
    settings = values.settings
    if not settings.profiles and len(models) == 1:
        profile = ProfileConfig(model=next(iter(models)))
        settings = settings.model_copy(update={"profiles": {settings.default_profile: profile}})
    return values.model_copy(update={"models": models, "settings": settings})


def filled(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``given`` with what it lacks, at every depth that ``defaults`` knows; ``null`` lacks its value.

    Requests and limits are taken or left as a whole: a limit that somebody left out is meant to be none.
    """
    out = {key: value for key, value in given.items() if value is not None}
    for key, value in defaults.items():
        if key not in out:
            out[key] = value
        elif key != "resources" and isinstance(value, Mapping) and isinstance(out[key], Mapping):
            out[key] = filled(value, out[key])
    return out


def _with_options(model: ModelValues) -> ModelValues:
    if model.options.keys() & {"num_replicas", "autoscaling_config"}:
        return model
    return model.model_copy(update={"options": check_options({**model.options, "autoscaling_config": {}})})
