"""The shipped fake embedder keeps the contract of real ones."""

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.testing.embedder import FakeEmbedder

EMBEDDER = FakeEmbedder(64)


def near(left, right):
    encoded = EMBEDDER.encode([left, right], "query")
    return float(encoded.vectors[0] @ encoded.vectors[1])


def test_texts_that_share_words_are_nearer_than_texts_that_do_not():
    assert near("How do I scale the engine?", "Scale the ENGINE with replicas") > 0.4
    assert near("How do I scale the engine?", "A red cotton shirt") < 0.3


def test_chinese_is_compared_by_characters():
    assert near("如何扩展模型引擎", "扩展引擎的方法") > 0.4
    assert near("如何扩展模型引擎", "红色棉布衬衫") < 0.3


def test_full_width_letters_are_folded():
    assert near("Ray Serve", "Ｒａｙ　ＳＥＲＶＥ") > 0.99


def test_token_rows_belong_to_their_texts():
    encoded = EMBEDDER.encode(["one two", "", "三四 five"], "passage", tokens=True)
    assert encoded.offsets.tolist() == [0, 2, 2, 5]
    assert encoded.tokens.shape == (5, 64)
    total = encoded.tokens[0:2].sum(axis=0)
    assert np.allclose(encoded.vectors[0], total / np.linalg.norm(total), atol=1e-6)


def test_tokens_are_left_out_when_not_asked_for():
    encoded = EMBEDDER.encode(["one two"], "passage")
    assert encoded.tokens.shape == (0, 64)
    assert encoded.offsets.tolist() == [0, 0]


def test_no_texts_give_empty_arrays():
    encoded = EMBEDDER.encode([], "query", tokens=True)
    assert (encoded.vectors.shape, encoded.tokens.shape) == ((0, 64), (0, 64))
    assert encoded.offsets.tolist() == [0]


def test_long_text_is_cut_and_flagged():
    embedder = FakeEmbedder(16, max_tokens=4)
    encoded = embedder.encode(["a b c d", "a b c d e"], "passage", tokens=True)
    assert encoded.truncated.tolist() == [False, True]
    assert encoded.offsets.tolist() == [0, 4, 8]
    assert np.array_equal(encoded.vectors[0], encoded.vectors[1])


def test_megabytes_take_no_time():
    started = time.thread_time()
    assert EMBEDDER.encode(["word " * 2_000_000], "passage").truncated.all()
    assert time.thread_time() - started < 0.5


def test_vectors_are_the_same_in_every_process():
    expected = [0.66752970, 0.67111927, -0.29600826, -0.12799321]
    assert np.allclose(FakeEmbedder(4).encode(["ray"], "query").vectors, [expected], atol=1e-6)


@settings(max_examples=30)
@given(st.lists(st.text(max_size=40), max_size=4))
def test_shapes_norms_and_independence_of_batch_mates(texts):
    encoded = EMBEDDER.encode(texts, "passage", tokens=True)
    assert encoded.vectors.dtype == encoded.tokens.dtype == np.float32
    assert encoded.offsets.dtype == np.int64
    assert np.allclose(np.linalg.norm(encoded.vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(np.linalg.norm(encoded.tokens, axis=1), 1, atol=1e-5)
    for index, text in enumerate(texts):
        assert np.array_equal(EMBEDDER.encode([text], "query").vectors[0], encoded.vectors[index])
