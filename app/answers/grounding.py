"""Late interaction between answer and passages.

MaxSim as in ColBERT (Khattab and Zaharia, SIGIR 2020): each token of a sentence looks for its nearest token in a
passage, and the mean over the tokens says how well the passage covers the sentence. Unlike ColBERT's sum the mean does
not grow with the sentence. Encoders of the e5 family squeeze all cosines into 0.7 to 1.0, and there words such as "the"
are near to something in every text. Two remedies: the same mean against fixed texts about nothing in particular
(``app/answers/references.py``) is the background that chance explains, whatever the collection holds; and for the
choice of a passage, tokens weigh by how much better their best candidate is than their mean candidate, which acts like
an inverse document frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_LOW_QUANTILE = 0.2
_EPSILON = np.float32(1e-6)

Floats = npt.NDArray[np.float32]
Offsets = npt.NDArray[np.int64] | npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for one sentence. Similarities are cosines, numbers are shares in [0, 1].

    ``mean`` and ``low`` are the mean and the 20th percentile, over the sentence's tokens, of the best similarity in any
    passage of the prompt; ``background`` is the mean of the best similarities in the nearer half of the reference
    texts; ``unknown_numbers`` is the share of the sentence's numbers that stand in no passage of the prompt. ``row`` is
    the best passage of the prompt.
    """

    mean: float
    low: float
    background: float
    unknown_numbers: float
    row: int


def max_similarities(tokens: Floats, passages: Floats, offsets: Offsets) -> Floats:
    """Return float32 ``(passages, tokens)``: the best cosine of each answer token in each passage.

    ``tokens`` is ``(t, d)``, ``passages`` ``(n, d)``, rows of length 1; rows ``offsets[i]:offsets[i+1]`` belong to
    passage ``i``. One matrix product; a passage without tokens gets -1.
    """
    best = np.full((len(offsets) - 1, len(tokens)), -1, np.float32)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled) and len(tokens):
        best[filled] = np.maximum.reduceat(passages @ tokens.T, offsets[:-1][filled], axis=0)
    return best


def gather_evidence(
    best: Floats,
    chance: Floats,
    sentence_offsets: Offsets,
    rows: Sequence[int],
    unknown_numbers: Sequence[float],
) -> list[Evidence | None]:
    """Return the evidence per sentence, None for one without tokens.

    ``best`` and ``chance`` come from :func:`max_similarities`, for the candidates and for the reference texts. Tokens
    ``sentence_offsets[i]:sentence_offsets[i+1]`` belong to sentence ``i``; ``rows`` are the passages that were in the
    prompt.
    """
    shown = best[list(rows)]
    all_texts = np.concatenate([best, chance])
    weights = all_texts.max(axis=0) - all_texts.mean(axis=0) + _EPSILON
    # The nearer half of the references is the half in the sentence's own language.
    background = np.sort(chance, axis=0)[len(chance) // 2 :].mean(axis=0)
    evidence: list[Evidence | None] = []
    for place, (start, end) in enumerate(pairwise(sentence_offsets)):
        if end <= start:
            evidence.append(None)
            continue
        union = shown[:, start:end].max(axis=0)
        coverage = shown[:, start:end] @ weights[start:end]
        evidence.append(
            Evidence(
                mean=float(union.mean()),
                low=float(np.quantile(union, _LOW_QUANTILE)),
                background=float(background[start:end].mean()),
                unknown_numbers=unknown_numbers[place],
                row=rows[int(coverage.argmax())],
            )
        )
    return evidence
