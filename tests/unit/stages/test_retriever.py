"""The retriever over the in-memory store and the fake embedder."""

import threading

import numpy as np
import pytest

from app.config.embedder import EmbedderConfig
from app.config.retrieval import RetrieverConfig, StoreConfig
from app.errors import (
    CollectionDamaged,
    CollectionNotFound,
    ConfigError,
    ContextLengthExceeded,
    EmbeddingMismatch,
    InvalidRequest,
)
from app.messages import PASSAGE_COLUMNS, RetrievalQuery, Retrieved
from app.stages.retriever import Retriever, RetrieverStructure
from app.stores.contract import CollectionInfo, damaged
from app.stores.payload import token_matrix
from app.testing.embedder import FakeEmbedder
from app.testing.store import MemoryStore

ANIMALS = [
    {"id": "zebra", "text": "The zebra note has the code word ZEBRA-77.", "metadata": {"lang": "en", "price": 5}},
    {"id": "lion", "text": "A lion sleeps all day.", "metadata": {"lang": "en", "price": 50}},
    {"id": "斑马", "text": "斑马住在草原上。", "source": "动物.md", "metadata": {"lang": "zh"}},
]


class CountingEmbedder(FakeEmbedder):
    """Counts calls, and keeps what it was asked."""

    def __init__(self, dimension=64, *, max_tokens=32):
        super().__init__(dimension, max_tokens=max_tokens)
        self.calls = []

    def encode(self, texts, kind, tokens=False):
        self.calls.append((list(texts), kind, tokens))
        return super().encode(texts, kind, tokens)


class BrokenStore(MemoryStore):
    """Holds one more collection, which cannot be read."""

    def list_collections(self, where=None):
        return [*super().list_collections(where), CollectionInfo("broken", 0, "", fault="it has no valid manifest")]

    def snapshot(self, name):
        if name == "broken":
            raise damaged(name, "it has no valid manifest")
        return super().snapshot(name)


def structure():
    return RetrieverStructure(embedder=EmbedderConfig(kind="fake", dimension=64))


@pytest.fixture
def stage():
    stage = Retriever(structure(), RetrieverConfig(), store=BrokenStore(), embedder=CountingEmbedder())
    stage.start()
    yield stage
    stage.close()


@pytest.fixture
def animals(stage):
    stage.upsert_documents("animals", ANIMALS)
    stage._embedder.calls.clear()
    return stage


def ask(text="zebra", *collections, **given):
    defaults = {"top_k": 4, "candidates": 64}
    return RetrievalQuery(text, collections or ("animals",), **(defaults | given))


def ids(found):
    return found.passages["id"].to_pylist()


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_finds_the_passage_with_its_tokens(animals, mode):
    found = animals.run(ask("zebra code word", mode=mode))
    assert tuple(found.passages.column_names) == PASSAGE_COLUMNS
    row = found.passages.slice(0, 1).to_pylist()[0]
    assert (row["id"], row["collection"], row["metadata"]) == ("zebra#0", "animals", '{"lang":"en","price":5}')
    assert 0.5 < row["score"] <= 1
    expected = FakeEmbedder(64).encode([ANIMALS[0]["text"]], "passage", tokens=True).tokens
    np.testing.assert_allclose(token_matrix(found.passages, slice(0, 1))[0], expected, atol=1e-3)
    assert set(found.milliseconds) == {"embed", "search"}
    assert found.top_k == 4
    assert not found.question_truncated


def test_chinese_questions_find_chinese_passages(animals):
    assert ids(animals.run(ask("斑马在哪里", mode="text"))) == ["斑马#0"]


def test_filter_and_min_score_narrow(animals):
    assert ids(animals.run(ask(filter={"price": {"gt": 10}}))) == ["lion#0"]
    assert ids(animals.run(ask("The zebra note has the code word ZEBRA-77.", min_score=0.9))) == ["zebra#0"]
    assert ids(animals.run(ask(filter={"lang": "fr"}))) == []


def test_collections_are_searched_together_and_merged(animals):
    animals.upsert_documents("more", [{"id": "best", "text": "zebra"}])
    found = animals.run(ask("zebra", "animals", "more", "animals"))
    assert ids(found)[:2] == ["best#0", "zebra#0"]
    assert found.passages["collection"].to_pylist()[:2] == ["more", "animals"]
    assert found.passages["score"][0].as_py() == pytest.approx(1.0, abs=1e-5)
    assert len(set(ids(found))) == found.passages.num_rows == 4


def test_collections_are_searched_in_parallel(animals):
    animals.upsert_documents("more", [{"text": "zebra"}])
    barrier = threading.Barrier(2, timeout=5)
    inner = animals._store.snapshot

    def meet(name):
        barrier.wait()
        return inner(name)

    animals._store.snapshot = meet
    assert animals.run(ask("zebra", "animals", "more")).passages.num_rows == 4


def test_late_interaction_reorders_by_tokens(animals):
    texts = {"spread": "zebra one two three four five code six seven eight", "dense": "zebra zebra zebra"}
    animals.upsert_documents("late", [{"id": key, "text": text} for key, text in texts.items()])
    plain = animals.run(ask("zebra code", "late", mode="vector"))
    late = animals.run(ask("zebra code", "late", mode="vector", late_interaction=True))
    assert ids(plain) == ["dense#0", "spread#0"]
    assert ids(late) == ["spread#0", "dense#0"]


def test_batch_embeds_once_and_equals_single_runs(animals):
    queries = [
        ask("zebra"),
        ask("lion sleeps", late_interaction=True),
        ask("斑马"),
        ask("zebra", filter={"lang": "zh"}),
    ]
    single = [animals.run(query) for query in queries]
    animals._embedder.calls.clear()
    batch = animals.run_batch(queries)
    assert len(animals._embedder.calls) == 1
    for alone, together in zip(single, batch, strict=True):
        assert isinstance(together, Retrieved)
        assert alone.passages.equals(together.passages)


def test_one_fault_in_a_batch_stays_with_its_question(animals):
    good, *bad = animals.run_batch(
        [
            ask(),
            ask("x", "nope"),
            ask("x", "broken"),
            ask(filter={"a": None}),
            ask("x", "../etc"),
            ask("x", "broken", "nope"),
        ]
    )
    assert ids(good)[0] == "zebra#0"
    kinds = [CollectionNotFound, CollectionDamaged, InvalidRequest, InvalidRequest, CollectionDamaged]
    assert [type(error) for error in bad] == kinds
    assert [error.param for error in bad[:4]] == ["rag.collection", "rag.collection", "rag.filter", "rag.collection"]
    assert animals.run_batch([]) == []


def test_unexpected_faults_become_ours_without_their_text(animals):
    animals._store.snapshot = lambda name: 1 / 0
    (error,) = animals.run_batch([ask()])
    assert (error.status, error.message) == (500, "The store failed; the log tells where.")


# --- odd collections and questions ----------------------------------------------------------------------------------


def test_unknown_collection_stays_unknown(stage):
    for _ in range(2):
        with pytest.raises(CollectionNotFound):
            stage.run(ask("zebra", "nope"))
        with pytest.raises(CollectionNotFound):
            stage.run(ask("  ", "nope"))
    assert [row["name"] for row in stage.list_collections()] == ["broken"]


def test_empty_collection_and_no_collection_find_nothing(stage):
    stage.upsert_documents("empty", [])
    for query in (ask("zebra", "empty"), RetrievalQuery("zebra", (), 4, 64)):
        found = stage.run(query)
        assert found.passages.num_rows == 0
        assert tuple(found.passages.column_names) == PASSAGE_COLUMNS


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u200b\u2060\ufeff", "\x01\x7f", "\u3164\ufe0f"])
def test_blank_question_finds_nothing_and_embeds_nothing(animals, text):
    assert animals.run(ask(text)).passages.num_rows == 0
    assert animals._embedder.calls == []


@pytest.mark.parametrize("text", ["🦓", "的", "of the", "' OR 1=1 --", "\\"])
@pytest.mark.parametrize("mode", ["hybrid", "text"])
def test_questions_without_words_are_answered(animals, text, mode):
    animals.run(ask(text, mode=mode))


def test_collection_of_another_size_is_a_conflict_and_named_in_the_status(animals):
    animals._store.create_collection("dim7", 7, "fake")
    animals._store.create_collection("other", 64, "another model")
    with pytest.raises(EmbeddingMismatch, match="'dim7' holds vectors of 7 numbers but the embedder makes 64"):
        animals.run(ask("zebra", "dim7"))
    status = animals.status()
    assert set(status) == {"broken", "dim7", "other"}
    assert status["dim7"] == "holds vectors of 7 numbers, the embedder makes 64"
    with pytest.raises(EmbeddingMismatch, match="another model"):
        animals.upsert_documents("other", [{"text": "x"}])


def test_long_question_is_cut_flagged_and_keeps_its_tail(animals):
    found = animals.run(ask("filler " * 700 + " zebra"))
    assert found.question_truncated
    assert ids(found)[0] == "zebra#0"
    embedded = animals._embedder.calls[-1][0][0]
    assert embedded.startswith("filler")
    assert embedded.endswith("zebra")


@pytest.mark.parametrize("text", ["word " * 3000, "字" * 5000, "x" * 100_000, "🦓" * 9000])
def test_any_long_question_is_answered_in_few_calls(animals, text):
    animals.run(ask(text))
    assert len(animals._embedder.calls) < 10
    assert all(len(asked) <= 32 * 16 + 1 for texts, _, _ in animals._embedder.calls for asked in texts)


@pytest.mark.parametrize("field", ["top_k", "candidates"])
@pytest.mark.parametrize("value", [0, -1, 10**12, 2.5, "5", True])
def test_numbers_out_of_range_are_refused(animals, field, value):
    numbers = {"top_k": 4, "candidates": 64, field: value}
    with pytest.raises(InvalidRequest, match=f"{field} must be a whole number from 1 to") as caught:
        animals.run(RetrievalQuery("zebra", ("animals",), **numbers))
    assert caught.value.param == field


def test_too_many_collections_and_unknown_modes_are_refused(animals):
    with pytest.raises(InvalidRequest, match="At most 8 collections"):
        animals.run(ask("zebra", *[f"c{number}" for number in range(9)]))
    with pytest.raises(InvalidRequest, match="mode 'fuzzy' is not"):
        animals.run(ask(mode="fuzzy"))


# --- life and management --------------------------------------------------------------------------------------------


def test_settings_change_whole_or_not_at_all(animals):
    animals.configure({"maxTopK": 5})
    with pytest.raises(InvalidRequest, match="from 1 to 5"):
        animals.run(ask(top_k=6))
    for wrong in ({"maxTopK": 0}, {"unknown": 1}, {"maxCandidates": "x"}):
        with pytest.raises(ConfigError):
            animals.configure(wrong)
    with pytest.raises(InvalidRequest, match="from 1 to 5"):
        animals.run(ask(top_k=6))


def test_management(animals):
    assert {key: animals.list_collections()[0][key] for key in ("name", "documents", "passages", "dimension")} == {
        "name": "animals",
        "documents": 3,
        "passages": 3,
        "dimension": 64,
    }
    assert animals.list_collections()[1]["fault"]
    assert animals.delete_documents("animals", ["lion", "unknown", "\n"]) == 1
    animals.delete_collection("animals")
    with pytest.raises(CollectionNotFound):
        animals.delete_collection("animals")
    with pytest.raises(CollectionNotFound):
        animals.delete_documents("animals", ["lion"])


def test_queries_are_embedded_for_the_endpoint(stage):
    embedded = stage.embed_queries(["zebra", "lion king"])
    vectors = embedded.vectors
    assert embedded.tokens == 3
    assert vectors.shape == (2, 64)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert stage.embed_queries([]).vectors.shape == (0, 64)
    with pytest.raises(InvalidRequest, match="at most 2048"):
        stage.embed_queries(["x"] * 2049)


def test_a_text_over_the_window_is_refused_with_both_numbers(stage):
    with pytest.raises(ContextLengthExceeded, match=r"length is 32 tokens and input 1 takes at least 33") as caught:
        stage.embed_queries(["zebra", "zebra " * 600])
    assert caught.value.param == "input"
    assert stage.embed_queries(["zebra " * 32]).tokens == 32


def test_not_started_says_so():
    with pytest.raises(ConfigError, match="not started"):
        Retriever(structure(), RetrieverConfig()).run(ask())


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "faiss"},
        {"secretEnv": "A", "secretFile": "/b"},
        {"kind": "qdrant", "storageOptions": {"region": "x"}},
        {"uri": ""},
        {"url": "x"},
    ],
)
def test_store_configuration_is_checked(raw):
    with pytest.raises(ConfigError):
        StoreConfig.parse(raw, "store")
