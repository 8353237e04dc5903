"""What every store does alike: collections, search, writes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import orjson
import pytest
from store_records import EMBEDDER, KINDS, fill, find, ids, names, records

from app.config.retrieval import StoreConfig
from app.errors import CollectionNotFound, ConfigError, EmbeddingMismatch, InternalError, InvalidRequest
from app.stores.build import build_store
from app.stores.payload import build_table, token_matrix
from app.stores.search import Search, search_collection

# --- collections ----------------------------------------------------------------------------------------------------


def test_collection_lives_and_dies(store):
    assert names(store) == []
    fill(store, records("a", "zebra", "lion"), records("b", "tiger"))
    info = store.describe("c")
    assert (info.dimension, info.embedder, info.documents, info.passages) == (32, "fake", 2, 3)
    assert info in store.list_collections()
    store.drop_collection("c")
    assert names(store) == []


def test_creating_twice_keeps_what_is_stored_and_refuses_another_size(store):
    fill(store, records("a", "zebra"))
    store.create_collection("c", 32, "fake")
    assert store.describe("c").passages == 1
    with pytest.raises(EmbeddingMismatch, match=r"32 numbers but the embedder makes 7"):
        store.create_collection("c", 7, "fake")


def test_unknown_collection_is_not_found_each_time(store):
    for _ in range(2):
        with pytest.raises(CollectionNotFound):
            find(store, "zebra", name="nope")
        for call in (store.describe, store.drop_collection, store.tidy, store.document_ids):
            with pytest.raises(CollectionNotFound):
                call("nope")
        for call in (store.delete_documents, store.hashes):
            with pytest.raises(CollectionNotFound):
                call("nope", ["a"])
        with pytest.raises(CollectionNotFound):
            store.upsert("nope", records("a", "zebra"))
    assert names(store) == []


@pytest.mark.parametrize(
    "name", ["../../etc", "/etc/passwd", "s3://x/y", "a" * 65, "知识库", "", "A", "a.b", "-a", "a b"]
)
def test_names_of_other_forms_are_refused(store, name):
    with pytest.raises(InvalidRequest, match="is no valid name of a collection"):
        store.create_collection(name, 32, "fake")
    with pytest.raises(InvalidRequest, match="is no valid name of a collection"):
        find(store, "zebra", name=name)


def test_longest_name_is_taken(store):
    fill(store, records("a", "zebra"), name="a" * 64)
    assert ids(find(store, "zebra", name="a" * 64)) == ["a#0"]


# --- search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_every_mode_finds_and_scores_by_cosine(store, mode):
    fill(store, records("a", "the zebra note"), records("b", "a lion sleeps"), records("c", "trains run late"))
    hits = find(store, "zebra note", mode=mode)
    assert hits[0].passage.id == "a#0"
    expected = float(
        EMBEDDER.encode(["zebra note"], "query").vectors[0] @ EMBEDDER.encode(["the zebra note"], "query").vectors[0]
    )
    assert hits[0].score == pytest.approx(expected, abs=1e-5)
    assert len(hits) == (1 if mode == "text" else 3)


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_empty_collection_finds_nothing(store, mode):
    fill(store)
    assert find(store, "zebra", mode=mode) == []


def test_text_search_segments_chinese_and_folds_english(store):
    fill(
        store,
        records("zh", "向量数据库的安装步骤"),
        records("en", "Installing the databases"),
        records("no", "别的东西"),
    )
    assert ids(find(store, "怎么安装", mode="text")) == ["zh#0"]
    assert ids(find(store, "INSTALLED database", mode="text")) == ["en#0"]


def test_rare_terms_count_more_than_common_ones(store):
    common = [records(f"d{number}", f"pipeline pipeline pipeline part {number}") for number in range(8)]
    fill(store, *common, records("rare", "pipeline with zanzibar"))
    assert ids(find(store, "pipeline zanzibar", mode="text"))[0] == "rare#0"


def test_text_search_takes_operators_as_words(store):
    fill(store, records("a", "it's a 'quoted' \\ word & more | or ! not :* (x)"))
    for question in ("'quoted' & !word", "x' | 'y", "more:* | (", "\\", "' OR 1=1 --"):
        find(store, question, mode="text")
    assert ids(find(store, "quoted'", mode="text")) == ["a#0"]


def test_min_score_means_the_same_in_all_modes(store):
    fill(
        store,
        records("near", "zebra note"),
        records("far", "zebra and many other words that dilute this passage a lot"),
    )
    for mode in ("hybrid", "vector", "text"):
        assert ids(find(store, "zebra note", mode=mode, min_score=0.9)) == ["near#0"]


def test_limit_bounds_the_hits(store):
    fill(store, *[records(f"d{number}", f"zebra {number}") for number in range(6)])
    for mode in ("hybrid", "vector", "text"):
        assert len(find(store, "zebra", mode=mode, limit=4)) == 4


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"memory"}))
def test_what_nobody_foresaw_is_no_damage(stores, kind, caplog):
    fill(stores[kind], records("a", "zebra"), name="healthy")
    with pytest.raises(InternalError) as caught, stores[kind].snapshot("healthy") as snapshot:
        snapshot.nearest(np.ones(7, np.float32), 3, None)
    assert (caught.value.status, caught.value.message) == (500, "The store failed; the log tells where.")
    assert "the store failed with" in caplog.text
    stores[kind].drop_collection("healthy")


def test_vector_of_another_size_is_a_mismatch(store):
    fill(store, records("a", "zebra"))
    with store.snapshot("c") as snapshot, pytest.raises(EmbeddingMismatch):
        search_collection(snapshot, "c", Search(np.ones(7, np.float32), (), 3))


def test_passage_comes_back_whole(store):
    metadata = {"lang": "中文 'q' \"d\"", "price": 3.5, "n": 7, "ok": True, "big": 1e300}
    fill(store, records("ü/a b'c", 'text with "quotes" 和中文 🦓', metadata=metadata))
    hit = find(store, "quotes")[0]
    assert hit.passage.id == "ü/a b'c#0"
    assert hit.passage.text == 'text with "quotes" 和中文 🦓'
    assert hit.passage.source == "ü/a b'c.md"
    assert orjson.loads(hit.passage.metadata) == metadata
    matrix, offsets = token_matrix(build_table([hit], 32))
    expected = EMBEDDER.encode([hit.passage.text], "passage", tokens=True).tokens
    assert offsets.tolist() == [0, len(expected)]
    np.testing.assert_allclose(matrix, expected, atol=1e-3)


# --- writes ---------------------------------------------------------------------------------------------------------


def test_upsert_replaces_whole_documents(store):
    fill(store, records("a", "zebra one", "zebra two", "zebra three"), records("b", "zebra other"))
    store.upsert("c", records("a", "lion one", content_hash="h2"))
    assert set(ids(find(store, "zebra lion", mode="text"))) == {"a#0", "b#0"}
    assert store.hashes("c", ["a", "b", "x"]) == {"a": "h2", "b": "h1"}
    assert store.describe("c").passages == 2


def test_documents_are_deleted_by_id(store):
    fill(store, records("a", "zebra", "more"), records("b'; DROP", "zebra"))
    assert store.delete_documents("c", ["a", "unknown", "x' OR '1'='1"]) == 1
    assert list(store.document_ids("c")) == ["b'; DROP"]
    assert store.delete_documents("c", []) == 0
    assert store.delete_documents("c", ["b'; DROP"]) == 1
    assert find(store, "zebra") == []


def test_many_writes_stay_complete_after_tidying(store):
    fill(store)
    for number in range(15):
        store.upsert("c", records(f"d{number}", f"zebra number {number}", f"also {number}"))
        store.tidy("c")
    assert sorted(store.document_ids("c")) == sorted(f"d{number}" for number in range(15))
    for mode in ("vector", "text"):
        assert len(find(store, "zebra", mode=mode, limit=100)) == (30 if mode == "vector" else 15)


def test_concurrent_writers_lose_nothing(store):
    fill(store)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.upsert("c", records(f"d{n}", f"zebra {n}", f"lion {n}")), range(24)))
    assert store.describe("c").documents == 24
    assert store.describe("c").passages == 48


def test_readers_see_a_batch_whole_or_not_at_all(store):
    """Each write changes a word in all passages of all documents; a reader must never see two words at once."""
    words = ["zebra", "lion", "tiger"]

    def batch(word):
        return [record for n in range(4) for record in records(f"d{n}", f"{word} here", f"{word} there")]

    fill(store, batch("zebra"))
    stop = threading.Event()
    seen = []

    def read():
        while not stop.is_set():
            seen.append({hit.passage.text.split()[0] for hit in find(store, "here there", mode="vector", limit=50)})

    reader = threading.Thread(target=read)
    reader.start()
    for round_number in range(6):
        store.upsert("c", batch(words[round_number % 3]))
        store.tidy("c")
    stop.set()
    reader.join()
    assert seen
    assert all(len(found) == 1 for found in seen)


def test_an_open_snapshot_does_not_move(store):
    fill(store, records("a", "zebra old"))
    if type(store).__name__ == "QdrantStore":
        pytest.skip("local mode holds writers off instead: a second thread would wait")
    with store.snapshot("c") as snapshot:
        snapshot.fetch(["a#0"])
        thread = threading.Thread(target=store.upsert, args=("c", records("a", "zebra new")))
        thread.start()
        thread.join(20)
        assert [passage.text for passage in snapshot.fetch(["a#0"])] == ["zebra old"]
    assert [hit.passage.text for hit in find(store, "zebra")] == ["zebra new"]


# --- configuration --------------------------------------------------------------------------------------------------


def test_unusable_stores_say_so_at_start(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for config in (
        StoreConfig(uri=str(tmp_path / "file" / "below")),
        StoreConfig(kind="pgvector", uri="postgresql://nobody@127.0.0.1:1/none"),
        StoreConfig(kind="qdrant", uri="http://127.0.0.1:1"),
    ):
        with pytest.raises(ConfigError, match=r"store\.uri"):
            build_store(config).start()
