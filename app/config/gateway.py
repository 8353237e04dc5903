"""The gateway's configuration: profiles, models and limits. All of it may change while requests are served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, model_validator

from app.answers.json_check import check_schema
from app.config.base import Config
from app.config.priorities import DEFAULT_PRIORITIES, DEFAULT_PRIORITY, PriorityConfig
from app.config.profile import Count, ModelName, Name, ProfileConfig
from app.config.response_format import WrittenSchemaFormat
from app.config.routing import RoutingConfig
from app.errors import SchemaRejected
from app.faults import HOST_PATTERN, ORIGIN_PATTERN

Origin = Annotated[str, Field(pattern=ORIGIN_PATTERN)]
Host = Annotated[str, Field(pattern=HOST_PATTERN)]

#: First segments under which ``/<profile>/v1/…`` would hide a path of the gateway's own.
RESERVED_NAMES = frozenset({"v1", "static"})


class LimitsConfig(Config):
    """What one request may ask for. Over a limit it is refused with 400 (bodies: 413, 408) and the limit's value.

    Who may ask, too: from web pages of other sites, all but GET is refused with 403.
    """

    max_body_bytes: Count = 4 * 1024 * 1024
    """Largest request body in bytes."""
    body_timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How long a request's body may take to come in, in seconds; then it is refused with 408."""
    max_json_depth: Count = 64
    """Deepest nesting of a JSON body."""
    max_json_nodes: Count = 100_000
    """Most values (of lists and objects together) in one JSON body."""
    max_messages: Count = 256
    """Most messages in one chat request."""
    max_tokens: Count = 4096
    """Largest ``max_tokens``; a model's window may set a lower one."""
    max_n: Count = 8
    """Most choices (``n``) and candidates (``n_candidates``) of one request."""
    max_top_logprobs: Annotated[int, Field(ge=0)] = 20
    """Largest ``top_logprobs``."""
    max_stop: Count = 4
    """Most stop sequences."""
    max_stop_chars: Count = 64
    """Longest stop sequence in characters."""
    max_tools: Count = 32
    """Most tools of one request."""
    max_schema_depth: Count = 16
    """Deepest nesting of a JSON schema (response format or tool parameters)."""
    max_schema_bytes: Count = 64 * 1024
    """Largest JSON schema in bytes."""
    max_top_k: Count = 64
    """Most passages that a request may put into its prompt."""
    max_candidates: Count = 256
    """Most passages that a request may search for."""
    max_collections: Count = 8
    """Most collections that one request may search."""
    max_documents: Count = 1000
    """Most documents in one upsert or delete."""
    max_images: Count = 4
    """Most images in one chat request."""
    max_image_bytes: Count = 2 * 1024 * 1024
    """Largest image in bytes, before base64."""
    max_image_pixels: Count = 4096 * 4096
    """Most pixels of one image, as its header says: it is refused before it is unpacked."""
    max_embedding_inputs: Count = 256
    """Most texts in one embeddings request."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    """Deadline of a request that names none, in seconds."""
    max_timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Longest deadline that a request may ask for, in seconds."""
    retry_after_seconds: Count = 2
    """What ``Retry-After`` says on 503 when the stage that refused named no time."""
    allowed_origins: tuple[Origin, ...] = ()
    """Other sites whose web pages may call the gateway from a browser, such as ``https://chat.example.com``."""
    allowed_hosts: tuple[Host, ...] = ()
    """Names under which browsers may send the gateway more than GET, without ports; empty for any.

    Against DNS rebinding: a page of another site that lets its own name lead here looks like a page of ours, but for
    the header ``Host``. Addresses (``127.0.0.1``) are always let in: no other site's page is reached by them. Behind a
    proxy this is the name that the proxy writes.
    """

    @model_validator(mode="after")
    def _defaults_lie_within_maxima(self) -> Self:
        if self.timeout_seconds > self.max_timeout_seconds:
            raise ValueError("timeoutSeconds must not be larger than maxTimeoutSeconds")
        if self.max_top_k > self.max_candidates:
            raise ValueError("maxTopK must not be larger than maxCandidates")
        return self


class ModelInfo(Config):
    """What the gateway knows of a model."""

    context_tokens: Count = 8192
    """The model's window in tokens."""
    description: str = ""
    """One sentence for ``GET /v1/models``."""
    tools: bool = False
    """Whether the engine of this model was started with a tool-call parser."""
    images: bool = False
    """Whether the model reads images."""


class GatewayConfig(Config):
    """Everything the gateway decides by, cross-checked."""

    profiles: dict[Name, ProfileConfig]
    """Profiles by name."""
    models: dict[ModelName, ModelInfo]
    """Models, and their adapters as ``<model>:<adapter>``, by name."""
    default_profile: Name = "default"
    """The profile of requests that name none."""
    embedding_model: Name = "embedder"
    """The name under which ``/v1/embeddings`` offers the retriever's embedder."""
    limits: LimitsConfig = LimitsConfig()
    """Caps on requests."""
    model_capacity: dict[Name, Count] = Field(default_factory=dict)
    """Jobs in flight per model; more are refused before any stage works on them. Empty: any number."""
    priorities: dict[Name, PriorityConfig] = Field(default_factory=lambda: dict(DEFAULT_PRIORITIES))
    """Priority classes by name."""
    default_priority: Name = DEFAULT_PRIORITY
    """The class of requests that name none."""
    routing: dict[Name, RoutingConfig] = Field(default_factory=dict)
    """Variants, rules and shadows by profile."""
    #: What variants answer under: putting one together takes 0.3 ms of a core, and each request needs one.
    _variants: dict[tuple[str, str], ProfileConfig] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _classes_fit_together(self) -> Self:
        if self.default_priority not in self.priorities:
            raise ValueError(f"defaultPriority names {self.default_priority!r}, which priorities does not hold")
        for name, found in self.priorities.items():
            if (found.timeout_seconds or 0) > self.limits.max_timeout_seconds:
                raise ValueError(f"priorities.{name}.timeoutSeconds is larger than limits.maxTimeoutSeconds")
        return self

    @model_validator(mode="after")
    def _capacities_have_models(self) -> Self:
        unknown = sorted(self.model_capacity.keys() - self.models.keys())
        if unknown:
            raise ValueError(f"modelCapacity names {unknown[0]!r}, which models does not hold")
        return self

    @model_validator(mode="after")
    def _names_fit_together(self) -> Self:
        if self.default_profile not in self.profiles:
            raise ValueError(f"defaultProfile names {self.default_profile!r}, which profiles does not hold")
        clashes = sorted(self.profiles.keys() & (self.models.keys() | {self.embedding_model}))
        if clashes or self.embedding_model in self.models:
            name = clashes[0] if clashes else self.embedding_model
            raise ValueError(f"{name!r} is used twice among profiles, models and embeddingModel: rename one of them")
        hidden = sorted(self.profiles.keys() & RESERVED_NAMES)
        if hidden:
            raise ValueError(f"profile {hidden[0]!r} would hide a path of the gateway: rename it")
        return self

    @model_validator(mode="after")
    def _routes_fit_together(self) -> Self:
        taken = self.profiles.keys() | self.models.keys() | {self.embedding_model}
        for name, routing in self.routing.items():
            if name not in self.profiles:
                raise ValueError(f"routing names {name!r}, which profiles does not hold")
            if clashes := sorted(routing.variants.keys() & taken):
                raise ValueError(f"routing.{name}.variants.{clashes[0]} has the name of a profile or model: rename it")
            for variant, found in routing.variants.items():
                if found.profile is not None and found.profile not in self.profiles:
                    where = f"routing.{name}.variants.{variant}.profile"
                    raise ValueError(f"{where} names {found.profile!r}, which profiles does not hold")
            for place, rule in enumerate(routing.rules):
                where = f"routing.{name}.rules[{place}]"
                if rule.model is not None and rule.model not in self.models:
                    raise ValueError(f"{where}.model names {rule.model!r}, which models does not hold")
                if rule.when.priority not in {None, *self.priorities}:
                    raise ValueError(f"{where}.when.priority names {rule.when.priority!r}, which priorities lacks")
        return self

    def variant(self, profile: str, variant: str) -> ProfileConfig:
        """Return what a variant answers under."""
        return self._variants[profile, variant]

    @model_validator(mode="after")
    def _profiles_keep_to_models_and_limits(self) -> Self:
        for where, profile in self._answering():
            if profile.model not in self.models:
                raise ValueError(f"{where}.model names {profile.model!r}, which models does not hold")
            for key, value, limit in self._capped(profile):
                if value > limit:
                    raise ValueError(f"{where}.{key} is {value}, over its limit of {limit}")
            if isinstance(profile.response_format, WrittenSchemaFormat):
                self._check_schema(where, profile.response_format)
        return self

    def _answering(self) -> Iterator[tuple[str, ProfileConfig]]:
        """Yield all that a request may be answered under, with the key that it stands at; keep the variants."""
        for name, profile in self.profiles.items():
            yield f"profiles.{name}", profile
        for name, routing in self.routing.items():
            for variant, config in routing.variants.items():
                where = f"routing.{name}.variants.{variant}"
                try:
                    found = config.over(self.profiles[config.profile or name])
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from None
                self._variants[name, variant] = found
                yield where, found

    def _check_schema(self, where: str, response_format: WrittenSchemaFormat) -> None:
        try:
            check_schema(response_format.json_schema.tree, self.limits)
        except SchemaRejected as error:
            raise ValueError(f"{where}.responseFormat: {error.message}") from None

    def _capped(self, profile: ProfileConfig) -> tuple[tuple[str, int, int], ...]:
        limits, retrieval, own = self.limits, profile.retrieval, profile.limits
        window = self.models[profile.model].context_tokens
        tokens = min(limits.max_tokens, window)
        answer = min(tokens, own.max_tokens or tokens, own.context_tokens or tokens)
        return (
            ("nCandidates", profile.n_candidates, limits.max_n),
            ("limits.maxTokens", own.max_tokens or 1, tokens),
            ("limits.contextTokens", own.context_tokens or 1, window),
            ("sampling.maxTokens", profile.sampling.max_tokens or 1, answer),
            ("retrieval.topK", retrieval.top_k, limits.max_top_k),
            ("retrieval.candidates", retrieval.candidates, limits.max_candidates),
            ("retrieval.collections", len(retrieval.collections), limits.max_collections),
        )
