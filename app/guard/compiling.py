"""Turns settings into policies ready to use; whatever the last configuration built and still fits is used again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.config.guardrail import GuardrailConfig, GuardrailPolicy, PatternRule, TermRule
from app.errors import ConfigError, bounded
from app.guard import injection
from app.guard.classifier import Classifier, LoadClassifier
from app.guard.patterns import Pattern, compile_regex
from app.guard.policy import Policy, Rules
from app.guard.termfiles import read_terms
from app.guard.terms import Term, TermIndex
from app.messages import Action, Direction

_DIRECTIONS: tuple[Direction, ...] = ("input", "passage", "output")


@dataclass(slots=True)
class Parts:
    """The costly parts of a configuration, by what they were built from."""

    indexes: dict[tuple[Term, ...], TermIndex] = field(default_factory=dict)
    classifiers: dict[str, Classifier] = field(default_factory=dict)


class Compiler:
    """Compiles one configuration. ``parts`` afterwards holds what the next one may take over."""

    def __init__(self, load_classifier: LoadClassifier, previous: Parts) -> None:
        self.parts = Parts()
        self._previous = previous
        self._load = load_classifier

    def compile(self, config: GuardrailConfig) -> Mapping[str, Policy]:
        """Return every policy by name. Raises ConfigError naming the rule or file at fault."""
        policies = {}
        for name in config.names():
            settings = config.policy(name)
            if settings is not None:
                policies[name] = self._policy(settings, f"guardrail.policies.{name}")
        return policies

    def _policy(self, settings: GuardrailPolicy, where: str) -> Policy:
        terms = [(rule, "terms") for rule in settings.terms]
        for number, file in enumerate(settings.terms_files):
            place = f"{where}.termsFiles[{number}]"
            terms += [(rule, "termsFiles") for rule in read_terms(file, place)]
        patterns = [(rule, _user_pattern(rule, where)) for rule in settings.patterns]
        classifier = self._classifier(settings, where)
        rules = {}
        for direction in _DIRECTIONS:
            own = [pattern for rule, pattern in patterns if direction in rule.directions and not rule.normalised]
            folded = [pattern for rule, pattern in patterns if direction in rule.directions and rule.normalised]
            built_in = _injection(settings, direction)
            rules[direction] = Rules(
                terms=self._terms(terms, direction, where),
                original=(*own, *built_in.original, *_control_tokens(settings, direction)),
                folded=(*folded, *built_in.folded),
                single=built_in.single,
                classifier=classifier if _classifies(settings, direction) else None,
                classifier_rule=_classifier_rule(settings),
            )
        return Policy(rules=rules, on_error=settings.on_error, replacement=settings.replacement)

    def _terms(self, rules: list[tuple[TermRule, str]], direction: Direction, where: str) -> TermIndex | None:
        terms = tuple(term for rule, source in rules if direction in rule.directions for term in _expand(rule, source))
        if not terms:
            return None
        index = self.parts.indexes.get(terms) or self._previous.indexes.get(terms)
        try:
            index = index or TermIndex(terms)
        except ValueError as error:
            raise ConfigError(
                f"{where}: nothing is left of the term {bounded(str(error))} once blanks and invisible characters are"
                " dropped; remove it",
                "guardrail",
            ) from None
        self.parts.indexes[terms] = index
        return index

    def _classifier(self, settings: GuardrailPolicy, where: str) -> Classifier | None:
        rule = settings.classifier
        if rule is None:
            return None
        key = rule.model_dump_json(exclude={"action", "category", "directions"})
        classifier = self.parts.classifiers.get(key) or self._previous.classifiers.get(key)
        classifier = classifier or self._load(rule, f"{where}.classifier")
        self.parts.classifiers[key] = classifier
        return classifier


def _expand(rule: TermRule, source: str) -> Iterator[Term]:
    return (Term(text, rule.category, rule.action, source, rule.whole_word) for text in rule.terms)


def _user_pattern(rule: PatternRule, where: str) -> Pattern:
    place = f"{where}.patterns.{rule.name}"
    return Pattern(rule.name, rule.category, rule.action, rule.max_chars, _regex(rule.pattern, place))


def _regex(source: str, place: str) -> object:
    try:
        return compile_regex(source)
    except ValueError as error:
        raise ConfigError(f"{place}: the pattern {bounded(source)} does not compile: {error}", "guardrail") from None


def _injection(settings: GuardrailPolicy, direction: Direction) -> Rules:
    chosen = settings.injection
    if not chosen.enabled or direction not in chosen.directions:
        return Rules()
    spaced = tuple(_built_in("injection", source, chosen.action) for source in injection.spaced_rules())
    single = tuple(
        _built_in("injection", source, chosen.action, injection.MAX_LETTERS)
        for source in injection.single_letter_rules()
    )
    hidden = _built_in("hidden_text", injection.HIDDEN_TEXT, chosen.action)
    return Rules(original=(hidden,), folded=spaced, single=single)


def _control_tokens(settings: GuardrailPolicy, direction: Direction) -> tuple[Pattern, ...]:
    chosen = settings.control_tokens
    if not chosen.enabled or direction not in chosen.directions:
        return ()
    return (_built_in("control_token", injection.CONTROL_TOKENS, chosen.action),)


def _built_in(name: str, source: str, action: Action, max_chars: int = injection.MAX_CHARS) -> Pattern:
    category = "control_token" if name == "control_token" else "prompt_injection"
    return Pattern(name, category, action, max_chars, compile_regex(source))


def _classifies(settings: GuardrailPolicy, direction: Direction) -> bool:
    return settings.classifier is not None and direction in settings.classifier.directions


def _classifier_rule(settings: GuardrailPolicy) -> tuple[str, Action]:
    rule = settings.classifier
    return ("classifier", "flag") if rule is None else (rule.category, rule.action)
