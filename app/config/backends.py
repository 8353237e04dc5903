"""What does the work of an application's steps: any model of a hub or folder, the core LLM, a small local one."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from app.config.base import Config
from app.faults import DEVICE_PATTERN

Source = Annotated[str, Field(max_length=1024)]

#: The labels that the core LLM is asked to choose from.
STARS = ("1 star", "2 stars", "3 stars", "4 stars", "5 stars")


class BackendConfig(Config):
    """What all backends have in common."""

    kind: str
    """Which backend."""
    source: Source = ""
    """`transformers`: Hugging Face id or folder. `model`: name of one of Baton's models. `spacy`: name of an installed
    package. `extractive`: Hugging Face id or folder of an encoder. `vader`: nothing."""
    application: str = Field(default="", max_length=64)
    """`model`: the Serve application of that model; empty: `model-<source>`."""
    local_files_only: bool = False
    """Never call a model hub; an id must then lie in the local hub cache."""
    shared_weights: bool = True
    """`transformers` and `extractive` on the CPU: one copy of the weights per node, mapped by every replica."""
    device: str = Field(default="auto", pattern=DEVICE_PATTERN)
    """`auto` takes a GPU where the replica has one; `cpu`, `cuda` and `cuda:1` insist."""

    @model_validator(mode="after")
    def _needs_a_source(self) -> Self:
        if self.kind != "vader" and not self.source.strip():
            raise ValueError(f"set source, which kind {self.kind} needs")
        return self

    @property
    def model_application(self) -> str:
        """The Serve application of the model that `kind: model` asks."""
        return self.application or f"model-{self.source}"


class SentimentBackend(BackendConfig):
    """Judges how well or badly a text speaks."""

    kind: Literal["transformers", "model", "vader"] = "transformers"
    """`transformers`: a text classifier. `model`: the core LLM, with structured output. `vader`: a lexicon for English
    on the CPU, as 1 to 5 stars."""
    source: Source = "nlptown/bert-base-multilingual-uncased-sentiment"
    """`transformers`: Hugging Face id or folder. `model`: name of one of Baton's models. `vader`: not read."""
    negative_labels: tuple[str, ...] = Field(default=("1 star", "2 stars", "NEGATIVE"), min_length=1)
    """Labels whose scores add up to what counts as negative, in small or capital letters."""

    @model_validator(mode="after")
    def _something_is_negative(self) -> Self:
        if self.kind == "model" and not {label.lower() for label in self.negative_labels} & set(STARS):
            raise ValueError(f"negativeLabels names none of the labels that a model gives: {', '.join(STARS)}")
        return self


class SummaryBackend(BackendConfig):
    """Makes a long text short."""

    kind: Literal["transformers", "model", "extractive"] = "transformers"
    """`transformers`: an encoder-decoder that was trained to summarise. `model`: the core LLM, with structured output.
    `extractive`: the text's own most central sentences, chosen with an encoder, on the CPU."""
    source: Source = "sshleifer/distilbart-cnn-12-6"
    """`transformers`, `extractive`: Hugging Face id or folder. `model`: name of one of Baton's models."""


class EntitiesBackend(BackendConfig):
    """Finds the names of people, places and organisations."""

    kind: Literal["transformers", "model", "spacy"] = "transformers"
    """`transformers`: a token classifier. `model`: the core LLM, with structured output. `spacy`: a pipeline of spaCy
    on the CPU."""
    source: Source = "Davlan/bert-base-multilingual-cased-ner-hrl"
    """`transformers`: Hugging Face id or folder. `model`: name of one of Baton's models. `spacy`: name of an installed
    package."""
