import numpy as np
import pytest

from app.answers.grounding import gather_evidence, max_similarities

EYE = np.eye(4, dtype=np.float32)


def test_max_similarities_equal_the_definition():
    generator = np.random.default_rng(7)
    tokens = generator.standard_normal((5, 8), np.float32)
    passages = generator.standard_normal((9, 8), np.float32)
    offsets = np.array([0, 2, 2, 6, 9])

    best = max_similarities(tokens, passages, offsets)
    for passage in (0, 2, 3):
        part = passages[offsets[passage] : offsets[passage + 1]]
        expected = [max(float(token @ row) for row in part) for token in tokens]
        np.testing.assert_allclose(best[passage], expected, rtol=1e-5)
    assert (best[1] == -1).all()
    assert best.dtype == np.float32


@pytest.mark.parametrize(("tokens", "offsets"), [(0, [0, 2]), (2, [0]), (2, [0, 0])])
def test_nothing_to_compare(tokens, offsets):
    best = max_similarities(EYE[:tokens], EYE[: offsets[-1]], np.array(offsets))

    assert best.shape == (len(offsets) - 1, tokens)


def test_words_that_every_passage_has_do_not_choose_the_passage():
    # The first two tokens are in every candidate, the third in one only; passage 0 covers "the" a little better.
    best = np.array([[1.0, 1.0, 0.2], [0.9, 0.9, 0.8], [1.0, 1.0, 0.2]], np.float32)

    (evidence,) = gather_evidence(best, best[:1], np.array([0, 3]), (0, 1), [0.0])
    assert evidence.row == 1
    assert evidence.mean == pytest.approx((1 + 1 + 0.8) / 3)


def test_only_passages_of_the_prompt_are_evidence():
    best = np.array([[0.1], [0.9]], np.float32)

    chance = np.array([[0.2], [0.4]], np.float32)

    (evidence,) = gather_evidence(best, chance, np.array([0, 1]), (0,), [0.5])
    assert (evidence.row, evidence.mean, evidence.unknown_numbers) == (0, pytest.approx(0.1), 0.5)
    assert evidence.background == pytest.approx(0.4), "the nearer half of the references"


def test_a_sentence_without_tokens_has_no_evidence():
    assert (
        gather_evidence(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), np.array([0, 0, 1]), (0,), [0, 0])[0]
        is None
    )
