"""Search as every store does it: two rankings, one fusion, one score, one optional reordering by tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from app.stores.contract import Matrix, Snapshot, check_dimension
from app.stores.filters import Filter, Never
from app.stores.payload import Hit, decode_tokens

#: The constant of reciprocal rank fusion, sum over rankings of 1 / (k + rank): G. V. Cormack, C. L. A. Clarke,
#: S. Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009.
RRF_K = 60


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for in one collection. ``vector``: float32 ``(dimension,)``; ``terms``: ``terms.unique_terms``."""

    vector: Matrix
    terms: tuple[str, ...]
    limit: int
    mode: Literal["hybrid", "vector", "text"] = "hybrid"
    where: Filter | Never | None = None
    min_score: float | None = None


def search_collection(snapshot: Snapshot, name: str, search: Search) -> list[Hit]:
    """Return up to ``limit`` hits of one collection, best first. Raises EmbeddingMismatch."""
    check_dimension(name, snapshot.dimension, len(search.vector))
    where = search.where
    if isinstance(where, Never):
        return []
    cosines: dict[str, float] = {}
    text_ranks: dict[str, int] = {}
    if search.mode != "text":
        near = snapshot.nearest(search.vector, search.limit, where)
        cosines |= _cosines(near.ids, near.vectors, search.vector)
    if search.mode != "vector" and search.terms:
        found = snapshot.matching(search.terms, search.limit, where)
        cosines |= _cosines(found.ids, found.vectors, search.vector)
        text_ranks = {passage: rank for rank, passage in enumerate(found.ids)}
    kept = [passage for passage, cosine in cosines.items() if search.min_score is None or cosine >= search.min_score]
    order = _order([cosines[key] for key in kept], [text_ranks.get(key) for key in kept], search.mode)
    chosen = [kept[index] for index in order[: search.limit]]
    return [Hit(passage, name, cosines[passage.id], text_ranks.get(passage.id)) for passage in snapshot.fetch(chosen)]


def merge_hits(groups: Sequence[Sequence[Hit]], mode: str, limit: int) -> list[Hit]:
    """Merge the hits of several collections: similarity is compared across them, full-text ranks are interleaved."""
    hits = [hit for group in groups for hit in group]
    if len(groups) < 2:
        return hits[:limit]
    order = _order([hit.score for hit in hits], [hit.text_rank for hit in hits], mode)
    return [hits[index] for index in order[:limit]]


def late_interaction(hits: Sequence[Hit], query_tokens: Matrix, dimension: int) -> list[Hit]:
    """Reorder hits by MaxSim: for each token of the question its best token of the passage, averaged.

    O. Khattab, M. Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over
    BERT", SIGIR 2020. ``query_tokens``: float32 ``(n, dimension)``, rows of length 1. ``score`` stays what it was.
    """
    if not hits or not len(query_tokens):
        return list(hits)
    matrix, offsets = decode_tokens([hit.passage.tokens for hit in hits], dimension)
    sums = max_sim(query_tokens, matrix, offsets)
    return [hits[index] for index in np.argsort(-sums, kind="stable")]


def max_sim(query_tokens: Matrix, matrix: Matrix, offsets: npt.NDArray[np.integer]) -> Matrix:
    """Return float32 ``(passages,)``: mean over the question's tokens of the best cosine in each passage.

    A passage without tokens gets -1.
    """
    result = np.full(len(offsets) - 1, -1.0, np.float32)
    filled = np.flatnonzero(np.diff(offsets) > 0)
    if len(filled):
        similarity = query_tokens @ matrix.T
        best = np.maximum.reduceat(similarity, offsets[filled], axis=1)
        result[filled] = best.mean(axis=0)
    return result


def fuse(rankings: Sequence[Sequence[int]], count: int) -> npt.NDArray[np.float64]:
    """Return the reciprocal-rank sums of ``count`` items; each ranking lists items, best first, none twice."""
    sums = np.zeros(count)
    for ranking in rankings:
        sums[list(ranking)] += 1.0 / (RRF_K + 1 + np.arange(len(ranking)))
    return sums


def _order(cosines: Sequence[float], text_ranks: Sequence[int | None], mode: str) -> list[int]:
    """Return positions, best first. Equal sums are told apart by similarity, then by position."""
    by_cosine = sorted(range(len(cosines)), key=lambda index: -cosines[index])
    if mode == "vector":
        return by_cosine
    ranked = [(rank, -cosines[index], index) for index, rank in enumerate(text_ranks) if rank is not None]
    by_text = [index for _, _, index in sorted(ranked)]
    if mode == "text":
        return by_text
    sums = fuse([by_cosine, by_text], len(cosines))
    return sorted(by_cosine, key=lambda index: -sums[index])


def _cosines(ids: Sequence[str], vectors: Matrix, query: Matrix) -> dict[str, float]:
    if not ids:
        return {}
    # Clipped, since rounding takes the similarity of equal vectors past 1.
    return dict(zip(ids, np.clip(vectors @ query, -1.0, 1.0).tolist(), strict=True))
