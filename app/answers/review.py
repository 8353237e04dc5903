"""One request's answers against the passages of its prompt: sentences, evidence, citations, confidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from app.answers.confidence import Calibration
from app.answers.grounding import (
    Evidence,
    Floats,
    Offsets,
    gather_evidence,
    max_similarities,
)
from app.answers.json_answer import JsonReport
from app.answers.numbers import Number, find_numbers, unsupported_in, values_in
from app.answers.references import REFERENCE_TEXTS
from app.answers.sentences import Sentence, split_sentences, split_values
from app.config.answers import PostprocessorConfig
from app.embedders.contract import Embedder, Encoded
from app.errors import EmbeddingMismatch
from app.messages import Choice, ChoiceReport, Citation, PostprocessRequest, Retrieved, UnsupportedNumber
from app.stores.payload import token_matrix

#: What an invented number leaves of an answer's grounding: whoever reads 1.25 for a price of 29.50 is misled by the
#: whole answer, however well the words around it are carried. Two take it to a quarter.
_LEFT_BY_A_NUMBER = 0.5
# Citation marks, and characters that JSON spells as hexadecimal digits.
_NO_NUMBERS = re.compile(r"\[\d{1,3}\]|\\u[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True)
class Grounded:
    """One sentence, what speaks for it, and the probability that the passages carry it."""

    sentence: Sentence
    evidence: Evidence
    probability: float
    unsupported: tuple[UnsupportedNumber, ...] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """What similarities are measured against: the fitted models, and the encoded reference texts."""

    calibration: Calibration
    references: Encoded

    @classmethod
    def build(cls, calibration: Calibration, embedder: Embedder) -> Self:
        """Encode the reference texts with a started embedder."""
        return cls(calibration, embedder.encode(REFERENCE_TEXTS, "passage", tokens=True))


class Review:
    """The work on one request. Only the passages behind ``rows`` can ground; the other candidates are background.

    No ``payload`` means that nothing was retrieved; a payload without rows, that no passage was shown.
    """

    def __init__(
        self,
        request: PostprocessRequest,
        payload: Retrieved | None,
        settings: PostprocessorConfig,
        scale: Scale,
    ) -> None:
        self._choices = request.choices
        self._rows = request.rows
        self._passages = payload.passages if payload is not None and request.rows else None
        self._found_nothing = payload is not None and not request.rows
        self._settings = settings
        self._scale = scale

    def ground(self, json_reports: Sequence[JsonReport | None], embedder: Embedder) -> list[list[Grounded]]:
        """Return the grounded sentences of each choice; all sentences of all choices are embedded in one call.

        Raises :class:`EmbeddingMismatch` when passages and embedder differ in dimension.
        """
        if self._passages is None:
            return [[] for _ in self._choices]
        sentences = [self._split(choice, report) for choice, report in zip(self._choices, json_reports, strict=True)]
        flat = [sentence.text for found in sentences for sentence in found]
        if not flat:
            return [[] for _ in self._choices]
        passages, offsets = token_matrix(self._passages)
        if passages.shape[1] != embedder.dimension:
            raise EmbeddingMismatch(
                f"the passages were embedded with {passages.shape[1]} dimensions and the embedder has "
                f"{embedder.dimension}: index the collection again with the embedder in use",
                "postprocessor",
            )
        encoded = embedder.encode(flat, "passage", tokens=True)
        references = self._scale.references
        known = values_in(_texts(self._passages, self._rows))
        grounded = []
        start = 0
        for choice, found in zip(self._choices, sentences, strict=True):
            tokens = _part(encoded, start, start + len(found))
            best = max_similarities(tokens[0], passages, offsets)
            chance = max_similarities(tokens[0], references.tokens, references.offsets)
            numbers = [unsupported_in(_without_marks(choice.text, sentence), known) for sentence in found]
            evidence = gather_evidence(best, chance, tokens[1], self._rows, [share for _, share in numbers])
            grounded.append(self._judge(found, evidence, [unsupported for unsupported, _ in numbers]))
            start += len(found)
        return grounded

    def report(self, choice: Choice, json_report: JsonReport | None, grounded: Sequence[Grounded]) -> ChoiceReport:
        """Return the report of one choice.

        ``grounding`` is the mean over its sentences, weighted by their length, and halved by each number of the answer
        that stands in no passage. Without a passage there is no grounding, and every number stands in none.
        """
        grounding = None
        unsupported = tuple(number for item in grounded for number in item.unsupported)
        if self._found_nothing:
            unsupported = tuple(self._all_numbers(choice, json_report))
        if grounded:
            lengths = [len(item.sentence.text) for item in grounded]
            total = sum(item.probability * length for item, length in zip(grounded, lengths, strict=True))
            grounding = total / sum(lengths) * _LEFT_BY_A_NUMBER ** len(unsupported)
        return ChoiceReport(
            index=choice.index,
            citations=self._citations(grounded),
            grounding=grounding,
            confidence=self._scale.calibration.confidence(grounding, choice.token_logprobs)
            if choice.text.strip()
            else None,
            json=json_report,
            unsupported_numbers=unsupported,
        )

    def _split(self, choice: Choice, json_report: JsonReport | None) -> list[Sentence]:
        text = choice.text[: self._settings.max_answer_chars]
        split = split_sentences if json_report is None else split_values
        return split(text, self._settings.max_sentences)

    def _all_numbers(self, choice: Choice, json_report: JsonReport | None) -> Iterator[UnsupportedNumber]:
        for sentence in self._split(choice, json_report):
            yield from _placed(list(find_numbers(_without_marks(choice.text, sentence))), sentence)

    def _judge(
        self, sentences: Sequence[Sentence], evidence: Sequence[Evidence | None], unsupported: Sequence[list[Number]]
    ) -> list[Grounded]:
        return [
            Grounded(sentence, found, self._scale.calibration.ground_sentence(found), _placed(numbers, sentence))
            for sentence, found, numbers in zip(sentences, evidence, unsupported, strict=True)
            if found is not None
        ]

    def _citations(self, grounded: Sequence[Grounded]) -> tuple[Citation, ...]:
        cited = [item for item in grounded if item.probability >= self._settings.citation_threshold]
        if not cited or self._passages is None:
            return ()
        columns = self._passages.select(["id", "collection", "source"])
        return tuple(_citation(item, columns, self._rows) for item in cited)


def _citation(item: Grounded, columns: pa.Table, rows: Sequence[int]) -> Citation:
    row = item.evidence.row
    return Citation(
        mark=rows.index(row) + 1,
        id=columns["id"][row].as_py(),
        collection=columns["collection"][row].as_py(),
        source=columns["source"][row].as_py() or "",
        score=item.probability,
        start=item.sentence.start,
        end=item.sentence.end,
    )


def _without_marks(answer: str, sentence: Sentence) -> str:
    """Return the characters of a sentence with blanks for what holds digits and is no number."""
    return _NO_NUMBERS.sub(lambda found: " " * len(found.group()), answer[sentence.start : sentence.end])


def _placed(numbers: Sequence[Number], sentence: Sentence) -> tuple[UnsupportedNumber, ...]:
    at = sentence.start
    return tuple(
        UnsupportedNumber(number.text, at + number.start, at + number.end, sentence.path) for number in numbers
    )


def _texts(passages: pa.Table, rows: Sequence[int]) -> list[str]:
    """Return what the prompt showed of the passages: texts and sources."""
    return [passages[name][row].as_py() or "" for name in ("text", "source") for row in rows]


def _part(encoded: Encoded, start: int, stop: int) -> tuple[Floats, Offsets]:
    """Return token rows and offsets of the texts ``start:stop``, without a copy of the rows."""
    offsets = encoded.offsets[start : stop + 1]
    return encoded.tokens[offsets[0] : offsets[-1]], offsets - offsets[0]
