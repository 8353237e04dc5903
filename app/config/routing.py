"""Routing of a profile: its variants with their weights, the rules that come before them, and shadow traffic."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from app.config.base import Config, describe
from app.config.profile import (
    CollectionName,
    Count,
    Fraction,
    ModelName,
    Name,
    ProfileConfig,
    ProfileLimits,
    SamplingDefaults,
)
from app.config.response_format import WrittenFormat

#: Between a profile's name and its variant's.
MARK = "@"
#: Fields of a variant that a profile has not, and those that are changed field by field.
_OWN, _PARTS = frozenset({"weight", "profile"}), ("retrieval", "sampling", "limits")
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def variant_name(profile: str, variant: str) -> str:
    """Return the model name under which a variant answers."""
    return f"{profile}{MARK}{variant}"


class RetrievalOverrides(Config):
    """What a variant retrieves otherwise than its profile; a field left empty is the profile's."""

    enabled: bool | None = None
    """Whether requests retrieve by default."""
    collections: tuple[CollectionName, ...] | None = None
    """Collections to search."""
    top_k: Count | None = None
    """Passages that reach the prompt."""
    candidates: Count | None = None
    """Passages searched for and handed to the postprocessor."""
    filter: dict[str, Any] | None = None
    """Metadata filter of requests that bring none."""
    min_score: float | None = None
    """Passages below this score are dropped."""
    mode: Literal["hybrid", "vector", "text"] | None = None
    """Which searches run."""
    late_interaction: bool | None = None
    """Rank the candidates by MaxSim over their token embeddings."""


class VariantConfig(Config):
    """One arm of a test or a canary: what it does otherwise than its profile. What is left out is the profile's."""

    weight: Weight = 0.0
    """Its share of the profile's callers, relative to the other weights. 0: only rules, names and shadows reach it."""
    profile: Name | None = None
    """Another profile to start from."""
    model: ModelName | None = None
    """The model that answers."""
    system_prompt: str | None = None
    """Text that opens every prompt."""
    retrieval: RetrievalOverrides = RetrievalOverrides()
    """Retrieval by default."""
    sampling: SamplingDefaults = SamplingDefaults()
    """Sampling by default."""
    policy: Name | None = None
    """The guardrail policy."""
    response_format: WrittenFormat | None = None
    """OpenAI's ``response_format`` for requests that bring none."""
    n_candidates: Count | None = None
    """Answers to generate for each answer returned."""
    limits: ProfileLimits = ProfileLimits()
    """Caps of its own."""

    def over(self, base: ProfileConfig) -> ProfileConfig:
        """Return the profile that the variant answers under. Raises ValueError where the two do not fit together."""
        changes = _given(self)
        parts = {name: {**_plain(getattr(base, name)), **_given(changes.pop(name))} for name in _PARTS}
        try:
            return ProfileConfig.model_validate({**_plain(base), **changes, **parts})
        except ValidationError as error:
            raise ValueError(describe(error, "with what its profile has:")) from None


def _plain(config: Config) -> dict[str, Any]:
    return {name: getattr(config, name) for name in type(config).model_fields}


def _given(config: Config) -> dict[str, Any]:
    return {name: value for name, value in _plain(config).items() if value is not None and name not in _OWN}


class When(Config):
    """Conditions of a rule, all of which must hold."""

    prompt_tokens_below: Count | None = None
    """The messages are estimated at fewer tokens than this; passages are not counted, for none are retrieved yet."""
    prompt_tokens_above: Annotated[int, Field(ge=0)] | None = None
    """The messages are estimated at more tokens than this."""
    language: Literal["en", "zh"] | None = None
    """The script of the last user message: ``zh`` for Chinese characters, ``en`` for Latin letters."""
    keys: tuple[Name, ...] | None = None
    """The request came with one of these API keys, by their ids."""
    json_asked: bool | None = None
    """Whether the request asks for JSON by ``response_format``."""
    priority: Name | None = None
    """The request's priority class."""
    busy_above: Fraction | None = None
    """More than this share of the requests that the engine of the profile's model works on at once is taken (its
    replicas' ``max_ongoing_requests``; waiting ones count too), told from this gateway's jobs times the gateways."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(value is None for value in _plain(self).values()):
            raise ValueError("name at least one condition: a rule without any would hide the weights")
        if self.keys == ():
            raise ValueError("keys is empty: name a key, or leave it out")
        below, above = self.prompt_tokens_below, self.prompt_tokens_above
        if below is not None and above is not None and below <= above + 1:
            raise ValueError(f"no prompt is below {below} and above {above} tokens: change one of them")
        return self


class RuleConfig(Config):
    """A rule: where its conditions hold, its variant or model answers, whatever the weights say."""

    when: When
    """Conditions, all of which must hold."""
    variant: Name | None = None
    """The variant that answers then."""
    model: ModelName | None = None
    """The model that answers then, under the profile as it is."""

    @model_validator(mode="after")
    def _names_one_goal(self) -> Self:
        if (self.variant is None) == (self.model is None):
            raise ValueError("name either variant or model, and not both")
        return self


class ShadowConfig(Config):
    """Requests that a variant answers besides, for its metrics alone: nobody gets or waits for these answers."""

    variant: Name
    """The variant that is tried."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the profile's requests, 0 to 1, that it gets a copy of."""


class RoutingConfig(Config):
    """How the requests of one profile are spread."""

    sticky: Literal["request", "user", "session"] = "request"
    """Who stays with a variant while the weights do: nobody (each request is drawn by its id), the caller (OpenAI's
    ``user`` or ``safety_identifier``), or the session (header ``x-session-id``). Without the one: by request."""
    variants: dict[Name, VariantConfig] = Field(default_factory=dict)
    """Variants by name; each is also a model name, ``<profile>@<variant>``."""
    rules: tuple[RuleConfig, ...] = ()
    """Rules before the weights; the first that matches decides."""
    shadow: tuple[ShadowConfig, ...] = ()
    """Variants that get copies of requests."""

    @model_validator(mode="after")
    def _goals_are_variants(self) -> Self:
        if not self.variants and not self.rules:
            raise ValueError("name variants or rules, or leave the profile out of routing")
        if self.variants and not any(variant.weight for variant in self.variants.values()):
            raise ValueError("the weights of all variants are 0: give one of them a weight")
        for place, rule in enumerate(self.rules):
            self._check(f"rules[{place}]", rule.variant)
        for place, shadow in enumerate(self.shadow):
            self._check(f"shadow[{place}]", shadow.variant)
        names = [shadow.variant for shadow in self.shadow]
        if len(set(names)) < len(names):
            raise ValueError("shadow names a variant twice: keep one of them")
        return self

    def _check(self, where: str, variant: str | None) -> None:
        if variant is not None and variant not in self.variants:
            raise ValueError(f"{where}.variant names {variant!r}, which variants does not hold")
