"""The whole configuration of a pipeline: what shapes its deployments, and what may change while it serves.

:class:`PipelineShape` becomes the ``args`` of the Serve application: a change restarts the application's replicas.
:class:`PipelineSettings` becomes ``user_config``: a change reaches live replicas in about a second, nothing restarts.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from app.config.answers import AssemblerConfig, PostprocessorConfig
from app.config.auth import AuthConfig
from app.config.base import Config
from app.config.deployment_options import Options
from app.config.embedder import EmbedderConfig
from app.config.gateway import GatewayConfig, LimitsConfig, ModelInfo
from app.config.guardrail import GuardrailConfig
from app.config.observing import LogsConfig, TracesConfig
from app.config.priorities import DEFAULT_PRIORITIES, DEFAULT_PRIORITY, PriorityConfig
from app.config.profile import Count, Name, ProfileConfig
from app.config.response_format import write_out
from app.config.retrieval import ChunkingConfig, RetrieverConfig, StoreConfig
from app.config.routing import RoutingConfig
from app.errors import ConfigError

Placement = Literal["gateway", "deployment"]
Queue = Annotated[int, Field(ge=-1)]


class StageShape(Config):
    """Where a stage runs and how much of it at once."""

    placement: Placement
    """``gateway``: in the gateway's process. ``deployment``: a Serve deployment of its own. A change to ``gateway``
    interrupts what needs the stage until the new gateway serves."""
    max_ongoing_requests: Count = 50
    """Requests that one replica works on at once."""
    max_queued_requests: Queue = 200
    """Requests that may wait for a replica; more are refused with 503. -1: any number."""
    threads: Annotated[int, Field(ge=1, le=256)] = 4
    """Threads of a replica that run the stage."""
    options: Options = Field(default_factory=dict)
    """Further options of the Serve deployment, under Ray's own names; only with placement ``deployment``."""

    @model_validator(mode="after")
    def _options_have_a_reader(self) -> Self:
        if self.placement == "gateway" and self.options:
            raise ValueError("options are read with placement: deployment only; drop them or change the placement")
        clash = sorted(self.options.keys() & {"name", "max_ongoing_requests", "max_queued_requests", "user_config"})
        if clash:
            raise ValueError(f"options.{clash[0]} is set by Baton; use the key of the stage itself")
        return self


class BatchingShape(StageShape):
    """A stage whose requests are gathered into batches."""

    max_batch_size: Annotated[int, Field(ge=1, le=1024)] = 16
    """Questions that one call of the embedder takes."""
    batch_wait_seconds: Annotated[float, Field(ge=0, le=1)] = 0.002
    """How long the first question of a batch waits for more."""


class GatewayShape(Config):
    """The HTTP ingress."""

    max_ongoing_requests: Count = 256
    """Chat, completion and embedding requests that one replica works on at once."""
    max_queued_requests: Queue = 256
    """Requests that may wait in a replica; more are refused with 503."""
    options: Options = Field(default_factory=dict)
    """Further options of the Serve deployment, under Ray's own names."""


class StagesShape(Config):
    """Every stage of the pipeline application. The generator is an application of its own, one per model."""

    gateway: GatewayShape = GatewayShape()
    """The ingress."""
    guardrail: StageShape = StageShape(placement="gateway")
    """Judges what comes in, what is retrieved and what goes out."""
    retriever: BatchingShape = BatchingShape(placement="deployment")
    """Embeds the question and searches the store."""
    assembler: StageShape = StageShape(placement="gateway")
    """Builds the prompt."""
    postprocessor: StageShape = StageShape(placement="deployment")
    """Checks and grounds the answer."""


class ServedModel(Config):
    """A model that the pipeline can ask."""

    application: str = Field(min_length=1, max_length=64)
    """The Serve application that holds its engine."""
    tokenizer: str = Field(min_length=1, max_length=1024)
    """Folder (or Hugging Face id in the local cache) of the model's tokenizer and chat template."""
    local_files_only: bool = True
    """Never ask a model hub for the tokenizer; false: an id that is not in the local cache is fetched."""
    chat_template: str | None = None
    """File with the chat template, where the engine was given another one than the model's own."""
    context_tokens: Count = 8192
    """The window in tokens, as the engine is started with."""
    tools: bool = False
    """Whether the engine was started with a tool-call parser."""
    images: bool = False
    """Whether the model reads images; requests with images to any other model are refused."""
    image_tokens: Count = 1024
    """Tokens that one image is counted as where the prompt is fitted into the window: as many as the model makes of one
    at most."""
    description: str = ""
    """One sentence for ``GET /v1/models``."""


class HandoffShape(Config):
    """How the retrieved passages get from the retriever to the stages that have deployments of their own."""

    path: Literal["arena", "objectStore"] = "arena"
    """``arena``: written once into shared memory by the retriever, with Ray's object store where the stages lie on
    different nodes or no slot is free. ``objectStore``: always by reference through Ray's object store."""
    slots: Annotated[int, Field(ge=1, le=4096)] = 128
    """Payloads in use at once per retriever replica: one per answer that is being written. Memory is taken as used."""
    slot_bytes: Annotated[int, Field(ge=4096, le=1 << 32)] = 64 * 1024 * 1024
    """Largest payload; larger ones go through the object store."""


class PipelineParts(Config):
    """What shapes the pipeline's deployments, besides the models that it asks."""

    embedder: EmbedderConfig
    """The encoder of retriever and postprocessor."""
    store: StoreConfig = StoreConfig()
    """Where collections live."""
    chunking: ChunkingConfig = ChunkingConfig()
    """How documents are cut into passages."""
    stages: StagesShape = StagesShape()
    """Placement and size of each stage."""
    handoff: HandoffShape = HandoffShape()
    """How the retrieved passages are handed on."""


class PipelineShape(PipelineParts):
    """What shapes the pipeline's deployments."""

    models: dict[Name, ServedModel] = Field(min_length=1)
    """Models by name."""


class PipelineSettings(Config):
    """What may change while the pipeline serves."""

    profiles: dict[Name, ProfileConfig] = Field(min_length=1)
    """Profiles by name."""
    default_profile: Name = "default"
    """The profile of requests that name none."""
    limits: LimitsConfig = LimitsConfig()
    """Caps on requests."""
    auth: AuthConfig = AuthConfig()
    """API keys."""
    model_capacity: dict[Name, Count] = Field(default_factory=dict)
    """Jobs in flight per model and gateway replica; more are refused with 503 before any stage works on them.
    Where it is left out it follows from the model's own options: what its replicas work on and what may wait."""
    adapters: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    """LoRA adapters by model, each reachable as the model ``<model>:<adapter>``. The engine has ``enable_lora`` and
    either ``lora_config`` (fetched when first asked for) or the adapters among its ``lora_modules``."""
    routing: dict[Name, RoutingConfig] = Field(default_factory=dict)
    """Variants of profiles with their weights, rules before the weights, and shadow traffic, by profile."""
    priorities: dict[Name, PriorityConfig] = Field(default_factory=lambda: dict(DEFAULT_PRIORITIES), max_length=16)
    """Priority classes by name; requests name theirs in the field `priority`."""
    default_priority: Name = DEFAULT_PRIORITY
    """The class of requests that name none."""
    guardrail: GuardrailConfig = GuardrailConfig()
    """Policies."""
    retriever: RetrieverConfig = RetrieverConfig()
    """Defaults and caps of the search."""
    assembler: AssemblerConfig = AssemblerConfig()
    """Budgets of the prompt."""
    postprocessor: PostprocessorConfig = PostprocessorConfig()
    """Thresholds of grounding and citations."""
    traces: TracesConfig = TracesConfig()
    """Spans of requests."""
    logs: LogsConfig = LogsConfig()
    """What is logged."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        for name, profile in self.profiles.items():
            self._check_policy(f"profiles.{name}", profile.policy)
        for name, routing in self.routing.items():
            for variant, found in routing.variants.items():
                self._check_policy(f"routing.{name}.variants.{variant}", found.policy)
        for key in ("max_top_k", "max_candidates", "max_collections"):
            allowed, searched = getattr(self.limits, key), getattr(self.retriever, key)
            if allowed > searched:
                name = to_camel(key)
                raise ValueError(f"limits.{name} is {allowed}, over retriever.{name} of {searched}: change one of them")
        return self

    def _check_policy(self, where: str, policy: str | None) -> None:
        if policy is not None and policy not in self.guardrail.names():
            raise ValueError(f"{where}.policy names {policy!r}, which guardrail.policies lacks")

    def in_order(self) -> Self:
        """Return the same with each JSON schema as text.

        Serve sorts the keys of mappings before it looks for a change, and the order of a schema's properties is one.
        """
        raw = self.model_dump(mode="json", by_alias=True)
        variants = (routing["variants"] for routing in raw["routing"].values())
        for answering in (raw["profiles"], *variants):
            for found in answering.values():
                write_out(found["responseFormat"])
        return type(self).model_validate(raw)

    def gateway(self, shape: PipelineShape) -> GatewayConfig:
        """Return the gateway's view: profiles and limits checked against the models that are served."""
        models = {
            name: ModelInfo(
                context_tokens=model.context_tokens,
                description=model.description,
                tools=model.tools,
                images=model.images,
            )
            for name, model in shape.models.items()
        }
        for name, adapters in self.adapters.items():
            if name not in models:
                raise ConfigError(f"settings.adapters names {name!r}, which models does not hold", "gateway")
            models |= {f"{name}:{adapter}": models[name] for adapter in adapters}
        return GatewayConfig.parse(
            {
                "profiles": self.profiles,
                "models": models,
                "default_profile": self.default_profile,
                "limits": self.limits,
                "model_capacity": self.model_capacity,
                "routing": self.routing,
                "priorities": self.priorities,
                "default_priority": self.default_priority,
            },
            "settings",
        )
