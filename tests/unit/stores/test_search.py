"""Fusion, merging and late interaction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.stores.contract import StoredPassage
from app.stores.payload import Hit, encode_tokens
from app.stores.search import RRF_K, fuse, late_interaction, max_sim, merge_hits


def hit(name, score, text_rank=None, tokens=None, collection="a"):
    rows = np.zeros((0, 2), np.float32) if tokens is None else np.array(tokens, np.float32)
    return Hit(StoredPassage(name, "", "", "{}", encode_tokens(rows)), collection, score, text_rank)


def names(hits):
    return [item.passage.id for item in hits]


def test_reciprocal_rank_fusion_is_the_published_sum():
    sums = fuse([[0, 1, 2], [2, 0]], 4)
    expected = [1 / (RRF_K + 1) + 1 / (RRF_K + 2), 1 / (RRF_K + 2), 1 / (RRF_K + 3) + 1 / (RRF_K + 1), 0]
    np.testing.assert_allclose(sums, expected)


@settings(max_examples=30)
@given(st.permutations(range(6)), st.permutations(range(6)))
def test_fusion_respects_agreement(first, second):
    sums = fuse([first, second], 6)
    for a in range(6):
        for b in range(6):
            if first.index(a) < first.index(b) and second.index(a) < second.index(b):
                assert sums[a] > sums[b]


def test_one_collection_keeps_its_order():
    hits = [hit("x", 0.1), hit("y", 0.9)]
    assert names(merge_hits([hits], "hybrid", 5)) == ["x", "y"]


def test_collections_are_merged_by_similarity():
    groups = [[hit("a1", 0.9), hit("a2", 0.3)], [hit("b1", 0.5), hit("b2", 0.4)]]
    assert names(merge_hits(groups, "vector", 3)) == ["a1", "b1", "b2"]


def test_hybrid_merge_weighs_similarity_and_text():
    groups = [[hit("a1", 0.2), hit("a2", 0.1)], [hit("b1", 0.9, 0), hit("b2", 0.15)]]
    assert names(merge_hits(groups, "hybrid", 4)) == ["b1", "a1", "b2", "a2"]


def test_text_merge_interleaves():
    groups = [[hit("a1", 0.2, 0), hit("a2", 0.1, 1)], [hit("b1", 0.9, 0), hit("b2", 0.3, 1)]]
    assert names(merge_hits(groups, "text", 4)) == ["b1", "a1", "b2", "a2"]


def test_max_sim_is_the_mean_of_best_matches():
    query = np.array([[1, 0], [0, 1]], np.float32)
    matrix = np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32)
    sums = max_sim(query, matrix, np.array([0, 2, 2, 3, 3]))
    np.testing.assert_allclose(sums, [0.9, -1.0, 0.5, -1.0], atol=1e-6)


def test_late_interaction_reorders_and_keeps_scores():
    hits = [hit("x", 0.9, tokens=[[1, 0]]), hit("none", 0.8), hit("y", 0.1, tokens=[[1, 0], [0, 1]])]
    ordered = late_interaction(hits, np.eye(2, dtype=np.float32), 2)
    assert names(ordered) == ["y", "x", "none"]
    assert [item.score for item in ordered] == pytest.approx([0.1, 0.9, 0.8])


def test_late_interaction_without_tokens_changes_nothing():
    hits = [hit("x", 0.1), hit("y", 0.9)]
    assert late_interaction(hits, np.zeros((0, 2), np.float32), 2) == hits
    assert late_interaction([], np.eye(2, dtype=np.float32), 2) == []
