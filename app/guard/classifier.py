"""A Hugging Face sequence classifier as one rule of the guardrail."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol

from app.config.guardrail import ClassifierRule
from app.errors import ConfigError, bounded
from app.weights.checkpoints import node_copy
from app.weights.sharing import Follower, Held

_WINDOWS_AT_ONCE = 16


class Classifier(Protocol):
    """Says for each text whether the rule hits."""

    def hits(self, texts: tuple[str, ...]) -> list[bool]:
        """Return one answer per text. Any exception means that the rule could not be evaluated."""
        ...


LoadClassifier = Callable[[ClassifierRule, str], Classifier]


class SequenceClassifier:
    """A model on the CPU. Long texts are cut into overlapping windows; the worst window decides."""

    def __init__(self, model: Any, tokenizer: Any, rule: ClassifierRule, columns: tuple[int, ...]) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._rule = rule
        self._columns = list(columns)

    def follow(self, held: Held) -> None:
        """Run on the newest version of shared weights from now on, as long as this object is in use."""
        self._follower = Follower(held, self._adopt)
        self._follower.start()

    def _adopt(self, held: Held) -> None:
        self._model = held.module

    def hits(self, texts: tuple[str, ...]) -> list[bool]:
        """Return whether any window of a text reaches the threshold for any of the labels."""
        model = self._model  # one version for all texts, whatever is adopted meanwhile
        answers = [False] * len(texts)
        for index, text in enumerate(texts):
            answers[index] = bool(text.strip()) and self._score(model, text) >= self._rule.threshold
        return answers

    def _score(self, model: Any, text: str) -> float:
        import torch

        batch = self._tokenizer(
            text,
            truncation=True,
            max_length=self._rule.window_tokens,
            stride=self._rule.window_tokens // 8,
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        batch.pop("overflow_to_sample_mapping", None)
        worst = 0.0
        with torch.inference_mode():
            for start in range(0, len(batch["input_ids"]), _WINDOWS_AT_ONCE):
                window = {name: values[start : start + _WINDOWS_AT_ONCE] for name, values in batch.items()}
                worst = max(worst, float(self._probabilities(model(**window).logits).max()))
        return worst

    def _probabilities(self, logits: Any) -> Any:
        many = self._model.config.problem_type == "multi_label_classification"
        return (logits.sigmoid() if many else logits.softmax(-1))[:, self._columns]


def load_classifier(rule: ClassifierRule, where: str) -> Classifier:
    """Load a classifier. Raises ConfigError naming the path, or the label that the model has not."""
    from transformers import AutoTokenizer

    _check_folder(rule, where)
    try:
        tokenizer = AutoTokenizer.from_pretrained(rule.path, local_files_only=True)
        held = (
            node_copy(Path(rule.path), "classifier", lambda: _load_model(rule), where) if rule.shared_weights else None
        )
        model = _load_model(rule) if held is None else held.module
    except (OSError, ValueError) as error:
        raise _unreadable(rule, where, error) from None
    known = {str(label): column for column, label in model.config.id2label.items()}
    _check_labels(rule, known, where)
    classifier = SequenceClassifier(model, tokenizer, rule, tuple(int(known[label]) for label in rule.labels))
    if held is not None:
        classifier.follow(held)
    return classifier


def check_rule(rule: ClassifierRule, where: str) -> None:
    """Check what can be told without the weights; raises what :func:`load_classifier` does. Imports no library."""
    _check_folder(rule, where)
    if not Path(rule.path).is_dir():
        return  # a hub id: the cache is the loader's to search
    try:
        labels = json.loads((Path(rule.path) / "config.json").read_text(encoding="utf-8")).get("id2label")
    except (OSError, ValueError, AttributeError) as error:
        raise _unreadable(rule, where, error) from None
    if isinstance(labels, dict):
        _check_labels(rule, [str(label) for label in labels.values()], where)


def _check_folder(rule: ClassifierRule, where: str) -> None:
    if rule.shared_weights and not Path(rule.path).is_dir():
        raise ConfigError(f"{where}.sharedWeights needs a folder, and {bounded(rule.path)} is none", "guardrail")


def _check_labels(rule: ClassifierRule, known: Collection[str], where: str) -> None:
    missing = [label for label in rule.labels if label not in known]
    if missing:
        raise ConfigError(
            f"{where}.labels: the classifier has no label {bounded(missing[0])}; it has {bounded(sorted(known), 200)}",
            "guardrail",
        )


def _unreadable(rule: ClassifierRule, where: str, error: Exception) -> ConfigError:
    reason = f"cannot load the classifier {bounded(rule.path)} ({type(error).__name__})"
    return ConfigError(f"{where}: {reason}; give a folder with a model and its tokenizer", "guardrail")


def _load_model(rule: ClassifierRule) -> Any:
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(rule.path, local_files_only=True).eval()
