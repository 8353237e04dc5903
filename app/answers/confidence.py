"""From evidence to probabilities: logistic models whose coefficients were fitted on ``samples/calibration``.

``scripts/calibrate.py`` writes ``calibration.json`` beside this file, with where it comes from and how well it did.
Cosines mean different things to different encoders: fit again (``--embedder``) when another one is served.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from app.answers.grounding import Evidence
from app.errors import ConfigError, bounded

SHIPPED = Path(__file__).with_name("calibration.json")
# Engines report -inf or huge numbers for forced tokens; beyond this a token is simply unlikely.
_LEAST_LOGPROB = -20.0
_CLIP = 1e-3


@dataclass(frozen=True, slots=True)
class Logistic:
    """``1 / (1 + exp(-(intercept + Σ weight · feature)))``; features by name."""

    intercept: float
    weights: Mapping[str, float]

    def __call__(self, features: Mapping[str, float]) -> float:
        """Return the probability in (0, 1)."""
        score = self.intercept + sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted models. ``embedder`` names the encoder whose cosines they were fitted on."""

    embedder: str
    sentence: Logistic
    both: Logistic
    grounding_only: Logistic
    logprobs_only: Logistic

    @classmethod
    def load(cls, path: Path = SHIPPED) -> Self:
        """Read a calibration file. Raises :class:`ConfigError` naming it."""
        try:
            raw = json.loads(path.read_text("utf-8"))
            models = {name: _read_model(raw["models"][name]) for name in _MODELS}
            return cls(embedder=str(raw["provenance"]["embedder"]), **models)
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(
                f"no calibration in {bounded(str(path), 200)}: {bounded(reason)}", "postprocessor"
            ) from None

    def ground_sentence(self, evidence: Evidence) -> float:
        """Return the probability that the passages carry a sentence."""
        return self.sentence(sentence_features(evidence))

    def confidence(self, grounding: float | None, logprobs: Sequence[float]) -> float | None:
        """Return the probability that an answer is right, None when nothing is known.

        Without passages it rests on the logprobs alone, without logprobs on the grounding alone.
        """
        features = answer_features(grounding, logprobs)
        if grounding is not None:
            return (self.both if logprobs else self.grounding_only)(features)
        return self.logprobs_only(features) if logprobs else None


_MODELS = ("sentence", "both", "grounding_only", "logprobs_only")


def sentence_features(evidence: Evidence) -> dict[str, float]:
    """Return the features of the model ``sentence``."""
    return {
        "mean": evidence.mean,
        "low": evidence.low,
        "margin": evidence.mean - evidence.background,
        "unknown_numbers": evidence.unknown_numbers,
    }


def answer_features(grounding: float | None, logprobs: Sequence[float]) -> dict[str, float]:
    """Return the features of the answer's models that can be computed.

    The answer's length is left out on purpose: in any small sample it follows the way the answers were written.
    """
    features: dict[str, float] = {}
    if grounding is not None:
        clipped = min(1 - _CLIP, max(_CLIP, grounding))
        features["grounding_logit"] = math.log(clipped / (1 - clipped))
    if logprobs:
        bounded_logprobs = [max(_LEAST_LOGPROB, value) for value in logprobs]
        features["mean_logprob"] = sum(bounded_logprobs) / len(bounded_logprobs)
        features["min_logprob"] = min(bounded_logprobs)
    return features


def _read_model(raw: Mapping[str, Any]) -> Logistic:
    weights = {str(name): float(weight) for name, weight in raw["weights"].items()}
    return Logistic(intercept=float(raw["intercept"]), weights=weights)
