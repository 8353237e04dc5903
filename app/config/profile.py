"""A profile: a named bundle of pipeline behaviour."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.config.base import Config
from app.config.response_format import WrittenFormat
from app.errors import InvalidRequest
from app.faults import COLLECTION_PATTERN, MODEL_PATTERN, NAME_PATTERN
from app.stores.filters import parse_filter

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
#: A model, or one of its LoRA adapters: ``<model>:<adapter>``.
ModelName = Annotated[str, Field(pattern=MODEL_PATTERN)]
CollectionName = Annotated[str, Field(pattern=COLLECTION_PATTERN)]

Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class RetrievalDefaults(Config):
    """How a profile retrieves when the request does not say otherwise."""

    enabled: bool = False
    """Whether requests under this profile retrieve by default."""
    collections: tuple[CollectionName, ...] = ()
    """Collections to search."""
    top_k: Count = 4
    """Passages that reach the prompt."""
    candidates: Count = 64
    """Passages searched for and handed to the postprocessor."""
    filter: dict[str, Any] | None = None
    """Metadata filter (``app/stores/filters.py``) of requests that bring none."""
    min_score: float | None = None
    """Passages below this score are dropped."""
    mode: Literal["hybrid", "vector", "text"] = "hybrid"
    """Which searches run."""
    late_interaction: bool = False
    """Rank the candidates by MaxSim over their token embeddings."""

    @model_validator(mode="after")
    def _can_be_searched(self) -> Self:
        if self.enabled and not self.collections:
            raise ValueError("collections must name at least one collection where enabled is true")
        if self.top_k > self.candidates:
            raise ValueError("topK must not be larger than candidates")
        try:
            parse_filter(self.filter, "filter")
        except InvalidRequest as error:
            raise ValueError(error.message) from None
        return self


class SamplingDefaults(Config):
    """Sampling of requests that leave it open; a field left empty here is left to the engine."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 picks the likeliest token each time."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus: smallest share of probability to choose from."""
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """Number of likeliest tokens to choose from; -1 or 0 for all."""
    min_p: Fraction | None = None
    """Least probability, relative to the likeliest token's."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Penalty on tokens that occurred already."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Penalty on tokens by how often they occurred."""
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    """Factor on tokens of the prompt and the answer; 1 for none."""
    max_tokens: Count | None = None
    """Answer length; empty for what is left of the model's window."""


class ProfileLimits(Config):
    """Caps of a profile, within those of ``limits`` and of its model's window."""

    max_tokens: Count | None = None
    """Largest ``max_tokens``."""
    context_tokens: Count | None = None
    """Tokens that a chat's prompt and answer may take together: what does not fit is cut or refused, as it is where
    the model's window ends."""


class ProfileConfig(Config):
    """A named bundle of pipeline behaviour, reachable as ``/<name>/v1/…``, as ``profile`` and as a model name."""

    model: ModelName
    """The model that answers, or one of its adapters as ``<model>:<adapter>``."""
    description: str = ""
    """One sentence for ``GET /v1/models`` and the web page."""
    system_prompt: str = ""
    """Text that opens every prompt."""
    retrieval: RetrievalDefaults = RetrievalDefaults()
    """Retrieval by default."""
    sampling: SamplingDefaults = SamplingDefaults()
    """Sampling by default."""
    policy: Name = "default"
    """The guardrail policy that judges this profile's requests and answers."""
    response_format: WrittenFormat | None = None
    """OpenAI's ``response_format`` for requests that bring none, in OpenAI's own spelling. ``schema`` may also be JSON
    text, which keeps the order of its keys."""
    n_candidates: Count = 1
    """Answers to generate for each answer returned; the best by grounding and confidence is kept."""
    limits: ProfileLimits = ProfileLimits()
    """Caps of its own."""
