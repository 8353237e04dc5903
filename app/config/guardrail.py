"""Settings of the guardrail. All of them change live."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from app.config.base import Config
from app.faults import RULE_PATTERN

RuleAction = Literal["block", "redact", "flag"]
RuleDirection = Literal["input", "passage", "output"]

_EVERY_DIRECTION: tuple[RuleDirection, ...] = ("input", "passage", "output")
_INBOUND: tuple[RuleDirection, ...] = ("input", "passage")
Directions = Annotated[tuple[RuleDirection, ...], Field(min_length=1)]


class TermRule(Config):
    """Terms that share a category and an action."""

    terms: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(min_length=1)]
    """What to look for, in any script; case, width, look-alikes and hidden characters make no difference."""
    category: str = Field(default="blocked_term", min_length=1, max_length=64)
    """Name reported for a match; the text itself never is."""
    action: RuleAction = "block"
    """block refuses the text, redact replaces the match, flag only reports it."""
    whole_word: bool = True
    """Whether a term must not be part of a longer word, in scripts that set words apart."""
    directions: Directions = _EVERY_DIRECTION
    """Where the rule applies: input (user and tool messages), passage (retrieved text), output (answers)."""

    @model_validator(mode="before")
    @classmethod
    def _accept_one_term(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and "term" in raw and "terms" not in raw:
            return {**{key: value for key, value in raw.items() if key != "term"}, "terms": [raw["term"]]}
        return raw


class TermsFile(Config):
    """A file of terms, read again at each configuration."""

    path: str = Field(min_length=1)
    """Text (one term a line, # begins a comment line) or, named *.jsonl, one object a line: term, and optionally
    category, action, wholeWord in place of those below."""
    category: str = Field(default="blocked_term", min_length=1, max_length=64)
    """Category of terms that name none."""
    action: RuleAction = "block"
    """Action of terms that name none."""
    whole_word: bool = True
    """Whether a term must not be part of a longer word, for terms that do not say."""
    directions: Directions = _EVERY_DIRECTION
    """Where the terms apply."""


class PatternRule(Config):
    """One regular expression in RE2's syntax, which takes linear time."""

    name: str = Field(pattern=RULE_PATTERN)
    """Name reported for a match."""
    pattern: str = Field(min_length=1, max_length=4000)
    """The expression; it must not match the empty text."""
    category: str = Field(default="pattern", min_length=1, max_length=64)
    """Category reported for a match."""
    action: RuleAction = "block"
    """block refuses the text, redact replaces the match, flag only reports it."""
    max_chars: int = Field(default=64, ge=1, le=1024)
    """Longest match that counts; where the pattern applies to output, a stream is held back by as much."""
    normalised: bool = False
    """Whether to look at the normalised text (small letters, no disguises, - and _ as blanks) and not the original."""
    directions: Directions = _EVERY_DIRECTION
    """Where the rule applies."""


class InjectionRules(Config):
    """Built-in rules against text that wants to overrule the instructions ("ignore all previous instructions")."""

    enabled: bool = True
    """Whether the rules apply."""
    action: RuleAction = "block"
    """What a match does."""
    directions: Directions = _INBOUND
    """Where the rules apply."""


class ControlTokenRules(Config):
    """Built-in rule for chat-template tokens in text; the assembler makes them harmless in any case."""

    enabled: bool = True
    """Whether the rule applies."""
    action: RuleAction = "flag"
    """What a match does."""
    directions: Directions = _INBOUND
    """Where the rule applies."""


class ClassifierRule(Config):
    """A Hugging Face sequence classifier. It needs the whole text, so it cannot judge a stream (output)."""

    path: str = Field(min_length=1)
    """Folder of the model and its tokenizer, or a hub id that is in the local cache."""
    labels: Annotated[tuple[str, ...], Field(min_length=1)]
    """Labels of the model (config.id2label) that count as a hit."""
    threshold: float = Field(default=0.5, gt=0, le=1)
    """Probability from which a label counts."""
    action: Literal["block", "flag"] = "block"
    """What a hit does."""
    category: str = Field(default="classifier", min_length=1, max_length=64)
    """Category reported for a hit."""
    window_tokens: int = Field(default=256, ge=8, le=8192)
    """Longer texts are judged in windows of this many tokens, which overlap by an eighth."""
    directions: Annotated[tuple[Literal["input", "passage"], ...], Field(min_length=1)] = ("input",)
    """Where the classifier applies."""
    shared_weights: bool = False
    """One copy of the weights per node, mapped by every replica; see `embedder.sharedWeights`."""


def _as_file(raw: Any) -> Any:
    return {"path": raw} if isinstance(raw, str) else raw


class GuardrailPolicy(Config):
    """One named set of rules; a profile picks its policy by name."""

    terms: tuple[TermRule, ...] = ()
    """Terms, matched in one pass however many there are."""
    terms_files: tuple[
        Annotated[TermsFile, BeforeValidator(_as_file, json_schema_input_type=str | TermsFile)], ...
    ] = ()
    """Files of terms; a plain path takes the defaults."""
    patterns: tuple[PatternRule, ...] = ()
    """Regular expressions."""
    injection: InjectionRules = InjectionRules()
    """Built-in rules against prompt injection, English and Chinese."""
    control_tokens: ControlTokenRules = ControlTokenRules()
    """Built-in rule for chat-template tokens."""
    classifier: ClassifierRule | None = None
    """A model that judges beside the rules."""
    on_error: Literal["fail_open", "fail_closed"] = "fail_closed"
    """When a rule cannot be evaluated: let the text pass and say so, or refuse the request with 503."""
    replacement: str = Field(default="[redacted]", max_length=64)
    """What stands for a redacted match."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [rule.name for rule in self.patterns]
        if len(names) != len(set(names)):
            raise ValueError("two patterns have the same name; give each its own")
        return self


class GuardrailConfig(Config):
    """The guardrail: policies by name. ``default`` is always there."""

    policies: dict[str, GuardrailPolicy] = Field(default_factory=dict)
    """Policies by name; without an entry "default" that policy has the built-in rules only."""
    max_text_chars: int = Field(default=2_000_000, ge=1_000, le=20_000_000)
    """Longest text that is judged; a longer one is refused with 413."""
    pattern_budget_milliseconds: float = Field(default=200, gt=0, le=60_000)
    """Thread CPU time for all patterns over one request; past it the policy's onError decides."""

    def policy(self, name: str) -> GuardrailPolicy | None:
        """Return the policy called ``name``, None when there is none."""
        return self.policies.get(name, GuardrailPolicy() if name == "default" else None)

    def names(self) -> tuple[str, ...]:
        """Return the names of all policies, ``default`` first."""
        return tuple(dict.fromkeys(("default", *self.policies)))
