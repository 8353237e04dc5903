"""What only LanceDB has: folders, damage, versions, files and indexes."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from store_records import fill, find, ids, records

from app.config.retrieval import StoreConfig
from app.errors import CollectionDamaged, CollectionNotFound
from app.stores.lancedb import LanceStore


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


def _delete(path):
    path.unlink()


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwrite(path):
    path.write_bytes(b"x" * path.stat().st_size)


@pytest.mark.parametrize(
    ("folder", "harm"),
    [
        *(("data", harm) for harm in (_delete, _cut, _overwrite)),
        *(("_indices", harm) for harm in (_delete, _overwrite)),
        *(("_versions", harm) for harm in (_delete, _overwrite)),
    ],
)
def test_files_that_are_missing_or_broken_are_damage(lance, tmp_path, folder, harm):
    fill(lance, records("a", "zebra"))
    lance.tidy("c")
    for path in (tmp_path / "index" / "c.lance" / folder).rglob("*"):
        if path.is_file():
            harm(path)
    fresh = LanceStore(StoreConfig(uri=str(tmp_path / "index")))
    fresh.start()
    with pytest.raises(CollectionDamaged, match="restore it, or drop it"):
        find(fresh, "zebra", mode="text")


def test_table_of_another_maker_is_flagged(lance):
    rows = pa.table({"text": ["x"], "vector": pa.array([[0.1] * 7], pa.list_(pa.float32(), 7))})
    lance._db.create_table("dim7", rows)
    with pytest.raises(CollectionDamaged, match="not made by Baton: it has no column 'id'"):
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
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("go\n")
        child.stdin.flush()
        for number in range(8):
            lance.upsert("c", records(f"y{number}", f"zebra {number}"))
        assert child.wait(90) == 0
    assert lance.describe("c").documents == 16
