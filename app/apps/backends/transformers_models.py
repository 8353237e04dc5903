"""Sentiment, summaries and named entities by transformers, from any fitting model of the hub or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.apps.backends.checkpoint import Loaded, fault, load
from app.apps.messages import Entity, Sentiment, SummaryRequest
from app.config.backends import EntitiesBackend, SentimentBackend, SummaryBackend
from app.weights.sharing import Follower, Held

#: Tokens that neighbouring windows of a long text have in common: a name on the edge is whole in one of them.
_OVERLAP = 8


class _Following:
    """Runs on the newest version of shared weights, as long as this object is in use."""

    _loaded: Loaded
    _pipeline: Any = None

    def _follow(self, loaded: Loaded) -> None:
        self._loaded = loaded
        if loaded.held is not None:
            self._follower = Follower(loaded.held, self._adopt)
            self._follower.start()

    def _make(self, task: str, **arguments: Any) -> None:
        from transformers import pipeline

        loaded = self._loaded
        self._pipeline = pipeline(
            task, model=loaded.model, tokenizer=loaded.tokenizer, device=loaded.device, **arguments
        )

    def _adopt(self, held: Held) -> None:
        self._loaded = Loaded(held.module, self._loaded.tokenizer, "cpu", self._loaded.window, held)
        if self._pipeline is not None:
            self._pipeline.model = held.module


class TextClassifier(_Following):
    """Sentiment by transformers' pipeline ``text-classification``; what is over the model's window is cut off."""

    def __init__(self, config: SentimentBackend) -> None:
        self._config = config
        self._negative = {label.lower() for label in config.negative_labels}

    def start(self) -> None:
        """Load the model. Raises :class:`app.errors.ConfigError`, also where it has none of the negative labels."""
        self._follow(load(self._config, "AutoModelForSequenceClassification", "sentiment"))
        labels = [str(label) for label in self._loaded.model.config.id2label.values()]
        if not self._negative & {label.lower() for label in labels}:
            remedy = f"set backend.negativeLabels to those of {', '.join(sorted(labels))[:200]} that are negative"
            raise fault(self._config, "sentiment", "has none of the negative labels", remedy)
        self._make("text-classification", top_k=None)

    def run(self, requests: Sequence[str]) -> list[Sentiment]:
        """Judge texts in one batch."""
        window = self._loaded.window
        found = self._pipeline(list(requests), batch_size=len(requests), truncation=True, max_length=window)
        return [self._verdict(scores) for scores in found]

    def _verdict(self, scores: list[dict[str, Any]]) -> Sentiment:
        best = max(scores, key=lambda each: float(each["score"]))
        negative = sum(float(each["score"]) for each in scores if str(each["label"]).lower() in self._negative)
        return Sentiment(str(best["label"]), round(float(best["score"]), 4), round(min(1.0, negative), 4))


class TokenClassifier(_Following):
    """Named entities by transformers' pipeline ``token-classification``; long texts are read in windows."""

    def __init__(self, config: EntitiesBackend) -> None:
        self._config = config

    def start(self) -> None:
        """Load the model. Raises :class:`app.errors.ConfigError`."""
        self._follow(load(self._config, "AutoModelForTokenClassification", "entities"))
        self._loaded.tokenizer.model_max_length = self._loaded.window
        self._make("token-classification", aggregation_strategy="simple", stride=self._loaded.window // _OVERLAP)

    def run(self, requests: Sequence[str]) -> list[tuple[Entity, ...]]:
        """Find the names in texts, in one batch."""
        found = self._pipeline(list(requests), batch_size=len(requests))
        return [
            tuple(
                Entity(text[each["start"] : each["end"]], str(each["entity_group"]), round(float(each["score"]), 4))
                for each in entities
            )
            for text, entities in zip(requests, found, strict=True)
        ]


class Seq2Seq(_Following):
    """Summaries by an encoder-decoder; transformers has no pipeline for them any more (since version 5)."""

    def __init__(self, config: SummaryBackend) -> None:
        self._config = config

    def start(self) -> None:
        """Load the model. Raises :class:`app.errors.ConfigError`."""
        self._follow(load(self._config, "AutoModelForSeq2SeqLM", "summary"))

    def run(self, requests: Sequence[SummaryRequest]) -> list[str]:
        """Summarise texts; those with the same bounds go through the model in one batch."""
        summaries = [""] * len(requests)
        for bounds in {(request.min_tokens, request.max_tokens) for request in requests}:
            places = [at for at, each in enumerate(requests) if (each.min_tokens, each.max_tokens) == bounds]
            for place, text in zip(places, self._written([requests[at].text for at in places], *bounds), strict=True):
                summaries[place] = text
        return summaries

    def _written(self, texts: list[str], least: int, most: int) -> list[str]:
        import torch

        loaded = self._loaded
        batch = loaded.tokenizer(
            texts, truncation=True, max_length=loaded.window, padding=True, return_tensors="pt"
        ).to(loaded.device)
        with torch.inference_mode():
            written = loaded.model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                min_new_tokens=least,
                max_new_tokens=most,
                # The model's own lengths, meant for another task.
                max_length=None,
                min_length=None,
                do_sample=False,
            )
        return [text.strip() for text in loaded.tokenizer.batch_decode(written, skip_special_tokens=True)]
