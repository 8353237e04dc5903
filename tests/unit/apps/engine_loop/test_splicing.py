"""Splicing against a lookup in torch: every row is where it belongs, whatever was kept before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.apps.engine_loop.splicing import Part, Splicer, cut
from app.errors import InvalidRequest

MATRIX = np.random.default_rng(3).integers(0, 1 << 16, (50, 8), np.uint16)
TOKENS = st.lists(st.integers(0, 49), max_size=12).map(tuple)


def splicer(**bounds):
    return Splicer(MATRIX, "bfloat16", **({"most_parts": 4, "most_bytes": 1 << 20} | bounds))


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(TOKENS, st.booleans()), max_size=6), min_size=1, max_size=8))
def test_the_tensor_is_the_lookup_of_the_whole(prompts):
    splicing = splicer()
    for prompt in prompts:
        parts = [Part(tokens, shared) for tokens, shared in prompt]
        whole = [token for part in parts for token in part.tokens]
        found = splicing.splice(parts)
        assert np.array_equal(found.rows, MATRIX[np.array(whole, np.int64)])
        assert found.written + found.kept == len(whole)
        assert found.rows.flags.c_contiguous
        assert not found.rows.flags.writeable


def test_rows_of_a_passage_are_kept_by_its_tokens():
    splicing, passage = splicer(), Part((1, 2, 3), shared=True)
    assert splicing.splice([Part((9,)), passage]).kept == 0
    assert splicing.splice([passage, Part((8,))]).kept == 3
    assert splicing.splice([Part((1, 2, 3))]).kept == 0
    assert splicing.report() == {"parts": 1, "bytes": 3 * 8 * 2}


def test_kept_rows_are_bounded():
    splicing = splicer(most_parts=2)
    for token in (1, 2, 1, 3):
        splicing.splice([Part((token,), shared=True)])
    assert [splicing.splice([Part((token,), shared=True)]).kept for token in (1, 3, 2)] == [1, 1, 0]
    small = splicer(most_bytes=40)
    for token in range(5):
        small.splice([Part((token, token), shared=True)])
    assert small.report()["bytes"] <= 40
    small.splice([Part(tuple(range(20)), shared=True)])
    assert small.report()["bytes"] <= 40


def test_rows_that_came_computed_go_in_as_they_are():
    rows = np.full((2, 8), 7, np.uint16)
    found = splicer().splice([Part((1,)), Part((0, 0), rows=rows)])
    assert np.array_equal(found.rows[1:], rows)
    assert (found.written, found.kept) == (1, 2)


@pytest.mark.parametrize(
    "part",
    [
        Part((50,)),
        Part((-1,)),
        Part((1, 2), rows=np.zeros((1, 8), np.uint16)),
        Part((1,), rows=np.zeros((1, 8), np.float32)),
    ],
)
def test_what_does_not_fit_the_model_is_refused(part):
    with pytest.raises(InvalidRequest):
        splicer().splice([Part((1,)), part])


# --- cutting ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_cut_at_token_borders():
    #        "ab" "cd" "ef" "gh"
    parts = cut((1, 2, 3, 4), (2, 4, 6, 8), [(2, 6)])
    assert [(part.tokens, part.shared) for part in parts] == [((1,), False), ((2, 3), True), ((4,), False)]


def test_a_token_over_a_border_belongs_to_what_comes_before():
    assert [part.tokens for part in cut((1, 2, 3), (2, 4, 6), [(3, 5)])] == [(1, 2), (3,)]


@given(st.lists(st.integers(1, 4), max_size=20), st.lists(st.integers(0, 60), max_size=8).map(sorted))
def test_cutting_loses_no_token(lengths, points):
    ends = list(np.cumsum(lengths)) if lengths else []
    tokens = tuple(range(len(lengths)))
    spans = list(zip(points[::2], points[1::2], strict=False))
    assert tuple(token for part in cut(tokens, ends, spans) for token in part.tokens) == tokens
