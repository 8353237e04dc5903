"""The applications beside the pipeline: what shapes their deployments, and what may change while they serve.

``stages`` become the ``args`` of a Serve application of their own (without ``options``, which Serve changes in place),
``settings`` the ``user_config`` of its ingress, together with the pipeline's own limits, keys and guardrail.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.config.auth import AuthConfig
from app.config.backends import EntitiesBackend, SentimentBackend, SummaryBackend
from app.config.base import Config
from app.config.deployment_options import Options
from app.config.fetching import FetchConfig
from app.config.gateway import LimitsConfig
from app.config.guardrail import GuardrailConfig
from app.config.observing import TracesConfig
from app.config.pipeline import PipelineSettings, Queue
from app.config.profile import Count, Fraction, Name

ANALYZE = "analyze"
ARTICLES = "articles"

Threads = Annotated[int, Field(ge=1, le=256)]


class DeploymentShape(Config):
    """A deployment of an application: how much of it there is, and how much it does at once."""

    max_ongoing_requests: Count = 50
    """Requests that one replica works on at once."""
    max_queued_requests: Queue = 200
    """Requests that may wait for a replica; more are refused with 503. -1: any number."""
    replicas: Count = 1
    """Replicas, where `options` say nothing of them."""
    options: Options = Field(default_factory=dict)
    """Further options of the Serve deployment, under Ray's own names."""

    @model_validator(mode="after")
    def _options_have_a_reader(self) -> Self:
        clash = sorted(self.options.keys() & {"max_ongoing_requests", "max_queued_requests"})
        if clash:
            raise ValueError(f"options.{clash[0]} is set by Baton; use the key of the deployment itself")
        return self


class IngressShape(DeploymentShape):
    """The way into an application."""

    max_ongoing_requests: Count = 256
    """Requests that one replica works on at once."""
    max_queued_requests: Queue = 256
    """Requests that may wait in a replica; more are refused with 503."""


class PreprocessShape(DeploymentShape):
    """Tells the language, normalises, and cuts at a number of tokens."""

    replicas: Count = 2
    """Replicas, where `options` say nothing of them."""

    tokenizer: str = Field(default="nlptown/bert-base-multilingual-uncased-sentiment", min_length=1, max_length=1024)
    """Folder or Hugging Face id with the `tokenizer.json` that tokens are counted with."""
    local_files_only: bool = False
    """Never call a model hub; an id must then lie in the local hub cache."""
    threads: Threads = 2
    """Threads of a replica."""


class TaskShape(DeploymentShape):
    """A deployment that gathers requests into batches for a model (Serve's dynamic batching)."""

    threads: Threads = 1
    """Batches that a replica works on at once, each in a thread of its own."""
    max_batch_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Texts that one call of the model takes; 1 turns batching off. The core LLM batches by itself and is asked at
    once, whatever stands here."""
    batch_wait_seconds: Annotated[float, Field(ge=0, le=1)] = 0.01
    """How long the first text of a batch waits for more."""


class SentimentShape(TaskShape):
    """Judges how well or badly a text speaks."""

    max_batch_size: Annotated[int, Field(ge=1, le=1024)] = 10
    """Texts that one call of the model takes; 1 turns batching off. The core LLM batches by itself."""
    batch_wait_seconds: Annotated[float, Field(ge=0, le=1)] = 0.1
    """How long the first text of a batch waits for more."""
    backend: SentimentBackend = SentimentBackend()
    """What judges."""


class SummaryShape(TaskShape):
    """Makes a long text short."""

    backend: SummaryBackend = SummaryBackend()
    """What summarises."""


class ArticleSummaryShape(SummaryShape):
    """Makes an article short."""

    replicas: Count = 2
    """Replicas, where `options` say nothing of them."""


class EntitiesShape(TaskShape):
    """Finds named entities."""

    max_batch_size: Annotated[int, Field(ge=1, le=1024)] = 32
    """Texts that one call of the model takes; 1 turns batching off. The core LLM batches by itself."""
    backend: EntitiesBackend = EntitiesBackend()
    """What finds them."""


class SummaryLengths(Config):
    """How long a summary is, in tokens of the model that writes it."""

    min_tokens: Annotated[int, Field(ge=1, le=4096)] = 30
    """Shortest summary, as far as the text holds that much."""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 100
    """Longest summary."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError("minTokens must not be larger than maxTokens")
        return self


class AnalyzeStages(Config):
    """The deployments of the application `analyze`; the first one is its ingress."""

    analyze: IngressShape = IngressShape()
    """The ingress."""
    preprocess: PreprocessShape = PreprocessShape()
    """Language, normalisation, cut."""
    sentiment: SentimentShape = SentimentShape()
    """Stars."""
    summary: SummaryShape = SummaryShape()
    """The text, short."""


class AnalyzeSettings(Config):
    """What may change while `/analyze` serves."""

    max_input_tokens: Annotated[int, Field(ge=8, le=131_072)] = 512
    """Tokens of a text that are read; the rest is cut off."""
    min_summary_words: Annotated[int, Field(ge=1)] = 30
    """A text of fewer words is its own summary, unchanged."""
    summary: SummaryLengths = SummaryLengths()
    """How long a summary is."""
    policy: Name = "default"
    """The guardrail's policy for the text."""


class ArticlesStages(Config):
    """The deployments of the application `articles`; the first one is its ingress, which also fetches."""

    articles: IngressShape = IngressShape()
    """The ingress."""
    sentiment: SentimentShape = SentimentShape()
    """The gate."""
    summary: ArticleSummaryShape = ArticleSummaryShape()
    """The text, short."""
    entities: EntitiesShape = EntitiesShape()
    """Named entities."""


class ArticlesSettings(Config):
    """What may change while `/articles` serves."""

    negative_threshold: Fraction = 0.6
    """A text whose negative share reaches it is turned away."""
    entity_threshold: Fraction = 0.95
    """Entities with a lower score are left out."""
    max_entities: Annotated[int, Field(ge=0, le=100)] = 5
    """Most entities of one reply, the surest first."""
    max_chars: Annotated[int, Field(ge=100, le=1_000_000)] = 20_000
    """Characters of an article that are read; the rest is cut off."""
    summary: SummaryLengths = SummaryLengths()
    """How long a summary is."""
    fetch: FetchConfig = FetchConfig()
    """Where articles come from."""
    policy: Name = "default"
    """The guardrail's policy: for a text that is sent as input, for one that is fetched as a passage."""


class AnalyzeApplication(Config):
    """`/analyze`: language, sentiment and summary of a text."""

    enabled: bool = False
    """Whether it is served."""
    stages: AnalyzeStages = AnalyzeStages()
    """Its deployments. A change restarts this application, except for `replicas` and the options that Serve changes in
    place."""
    settings: AnalyzeSettings = AnalyzeSettings()
    """What changes in place."""


class ArticlesApplication(Config):
    """`/articles`: summary and named entities of an article, unless it is negative."""

    enabled: bool = False
    """Whether it is served."""
    stages: ArticlesStages = ArticlesStages()
    """Its deployments. A change restarts this application, except for `replicas` and the options that Serve changes in
    place."""
    settings: ArticlesSettings = ArticlesSettings()
    """What changes in place."""


class ApplicationsConfig(Config):
    """The applications beside the pipeline; each is served under its own name as a path."""

    analyze: AnalyzeApplication = AnalyzeApplication()
    """`/analyze`: language, sentiment and summary of a text."""
    articles: ArticlesApplication = ArticlesApplication()
    """`/articles`: summary and named entities of an article, unless it is negative."""

    def enabled(self) -> dict[str, AnalyzeApplication | ArticlesApplication]:
        """Return the applications that are served, by name."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: application for name, application in found.items() if application.enabled}


class IngressSettings(Config):
    """What an ingress shares with the gateway: it comes from the pipeline's settings."""

    limits: LimitsConfig = LimitsConfig()
    """Caps on requests."""
    auth: AuthConfig = AuthConfig()
    """API keys."""
    guardrail: GuardrailConfig = GuardrailConfig()
    """Policies."""
    traces: TracesConfig = TracesConfig()
    """Spans."""
    policy: Name = "default"
    """The policy for what the application reads."""


class StepSettings(Config):
    """The ``user_config`` of a step's deployment."""

    traces: TracesConfig = TracesConfig()
    """Spans."""


class AnalyzeLive(AnalyzeSettings, IngressSettings):
    """The ``user_config`` of the deployment ``analyze``."""


class ArticlesLive(ArticlesSettings, IngressSettings):
    """The ``user_config`` of the deployment ``articles``."""


#: What an ingress takes of the pipeline's settings.
SHARED = ("limits", "auth", "guardrail", "traces")


def check_applications(beside: ApplicationsConfig, settings: PipelineSettings, models: Collection[str]) -> None:
    """Raise ValueError where an enabled application names what is not there, or hides a profile.

    ``models`` are the Serve applications of the models.
    """
    for name, application in beside.enabled().items():
        where, policy = f"applications.{name}", application.settings.policy
        if policy not in settings.guardrail.names():
            raise ValueError(f"{where}.settings.policy names {policy!r}, which settings.guardrail.policies lacks")
        if name in settings.profiles:
            raise ValueError(f"{where} is served at /{name}, which hides the profile of that name: rename the profile")
        for step in type(application.stages).model_fields:
            backend = getattr(getattr(application.stages, step), "backend", None)
            if backend is not None and backend.kind == "model" and backend.model_application not in models:
                raise ValueError(
                    f"{where}.stages.{step}.backend asks the application {backend.model_application!r}, which no model "
                    "has: name one of the models in source"
                )


def shape_args(stages: Config) -> dict[str, Any]:
    """Return ``stages`` as an application's ``args``: without what Serve changes in place as overrides."""
    raw: dict[str, Any] = stages.model_dump(mode="json", by_alias=True)
    return {name: {key: value for key, value in stage.items() if key not in _OVERRIDES} for name, stage in raw.items()}


_OVERRIDES = frozenset({"replicas", "options"})
