"""Configuration of the own engine loop: what shapes its deployments, and what may change while it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from app.config.auth import AuthConfig
from app.config.base import Config
from app.config.deployment_options import Options
from app.config.gateway import LimitsConfig
from app.config.guardrail import GuardrailConfig
from app.config.observing import TracesConfig
from app.config.profile import Count, Name, SamplingDefaults
from app.faults import CLASS_PATTERN

#: vLLM's arguments where the configuration names none.
ENGINE_DEFAULTS: Mapping[str, Any] = {
    "enable_prefix_caching": True,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 32,
}
#: vLLM's arguments that follow from other keys or from the loop itself → what to do instead.
_OWN = {
    "model": "use source",
    "tokenizer": "use tokenizer",
    "enable_prompt_embeds": "use embeddings.enabled",
    "disable_log_stats": "leave it out, GET …/stats tells what the loop does",
    "data_parallel_size": "set num_replicas in options",
}


def _check_engine(raw: dict[str, Any]) -> dict[str, Any]:
    for name, instead in _OWN.items():
        if name in raw:
            raise ValueError(f"{name} is set by Baton: {instead}")
    places = raw.get("max_num_seqs", 1)
    if not isinstance(places, int) or isinstance(places, bool) or places < 1:
        raise ValueError("max_num_seqs must be a whole number from 1: Baton bounds the queue by it")
    return raw


class LoopSampling(SamplingDefaults):
    """Sampling of requests that leave it open; a field left empty here is left to the engine."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.7
    """0 picks the likeliest token each time."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 0.9
    """Nucleus: smallest share of probability to choose from."""
    max_tokens: Count | None = 1024
    """Answer length; empty for what is left of the model's window."""


class ResponseCacheConfig(Config):
    """The response cache: the example of a hook."""

    enabled: bool = False
    """Whether finished answers to deterministic requests (temperature 0, or a seed) are kept and given again."""
    max_answers: Count = 1024
    """Most answers that a replica keeps."""
    max_bytes: Count = 16 * 1024 * 1024
    """Most bytes of text and tokens that it keeps."""


class EmbeddingPromptsConfig(Config):
    """Prompts as tensors: the splicer writes them in the model's embedding space, the engine maps them."""

    enabled: bool = False
    """Whether the splicer is deployed and the engine takes tensors."""
    weight: str = Field(default="model.embed_tokens.weight", min_length=1, max_length=256)
    """Name of the input embedding's matrix in the model's checkpoint."""
    cached_passages: Count = 1024
    """Passages whose rows a replica of the splicer keeps."""
    cached_bytes: Count = 256 * 1024 * 1024
    """Most bytes of such rows."""
    options: Options = Field(default_factory=dict)
    """Options of the deployment `splicer` under Ray's own names."""


class EngineLoopShape(Config):
    """What shapes the application. A change restarts it, and nothing else."""

    model: Name
    """Name of the model, as keys' scopes and replies have it."""
    source: str = Field(min_length=1, max_length=1024)
    """Folder or id of the model, for the engine."""
    tokenizer: str = Field(default="", max_length=1024)
    """Folder or id of tokenizer and chat template; empty: the model's."""
    chat_template: str | None = None
    """File with the chat template, where it is not the model's own."""
    local_files_only: bool = True
    """Never ask a model hub for the tokenizer."""
    context_tokens: Count = 8192
    """The window in tokens that prompts are fitted into; the engine is started with it as `max_model_len`."""
    engine: Annotated[dict[str, Any], AfterValidator(_check_engine)] = Field(default_factory=dict)
    """Further arguments of vLLM's engine, verbatim, over prefix caching, `max_num_batched_tokens: 2048` and
    `max_num_seqs: 32`."""
    max_waiting: Annotated[int, Field(ge=0)] = 64
    """Requests that may wait for one of the engine's `max_num_seqs` places; more are refused with 503."""
    max_step_seconds: Annotated[float, Field(gt=0)] = 120.0
    """A step that takes longer counts as hung: the health check fails, and Serve starts the replica anew."""
    threads: Annotated[int, Field(ge=1, le=256)] = 4
    """Threads that judge and assemble."""
    hooks: tuple[Annotated[str, Field(pattern=CLASS_PATTERN)], ...] = ()
    """Your own hooks as import paths `module:Class`, made without arguments and called in this order."""
    cache: ResponseCacheConfig = ResponseCacheConfig()
    """The response cache."""
    embeddings: EmbeddingPromptsConfig = EmbeddingPromptsConfig()
    """Prompts as tensors."""

    @model_validator(mode="after")
    def _one_window(self) -> Self:
        if "max_model_len" in self.engine:
            raise ValueError("engine.max_model_len is set by Baton: use contextTokens")
        return self

    def engine_arguments(self) -> dict[str, Any]:
        """Return vLLM's ``EngineArgs``."""
        own = {"model": self.source, "tokenizer": self.tokenizer or self.source, "max_model_len": self.context_tokens}
        embeds = {"enable_prompt_embeds": True} if self.embeddings.enabled else {}
        return {**ENGINE_DEFAULTS, **self.engine, **own, **embeds, "disable_log_stats": True}

    @property
    def most_requests(self) -> int:
        """How many requests there may be, at work and waiting."""
        return int(self.engine_arguments()["max_num_seqs"]) + self.max_waiting


class LoopOwnSettings(Config):
    """What the application has for itself and may change while it serves."""

    system_prompt: str = ""
    """Text that opens every prompt."""
    sampling: LoopSampling = LoopSampling()
    """Sampling by default."""
    policy: Name = "default"
    """The guardrail policy that judges requests and answers."""


class EngineLoopSettings(LoopOwnSettings):
    """What may change while the application serves."""

    limits: LimitsConfig = LimitsConfig()
    """Caps on requests."""
    guardrail: GuardrailConfig = GuardrailConfig()
    """Policies."""
    auth: AuthConfig = AuthConfig()
    """API keys."""
    traces: TracesConfig = TracesConfig()
    """Spans."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.policy not in self.guardrail.names():
            raise ValueError(f"policy names {self.policy!r}, which guardrail.policies lacks")
        if (self.sampling.max_tokens or 1) > self.limits.max_tokens:
            raise ValueError(f"sampling.maxTokens is {self.sampling.max_tokens}, over limits.maxTokens")
        return self
