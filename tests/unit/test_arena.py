"""The arena hands a table on without copying it, gives slots back, and leaves nothing behind."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pyarrow as pa
import pytest

from app.arena import PREFIX, Arena, ArenaReader, remove_orphans
from app.errors import PayloadElsewhere

MIB = 1 << 20


def table(seed=0, rows=64):
    numbers = np.random.default_rng(seed).random((rows, 256), dtype=np.float32)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(numbers)
    return pa.table({"text": [f"passage {row} 护栏" for row in range(rows)], "tokens": tensor})


@pytest.fixture
def arena(tmp_path):
    arena = Arena(2, MIB, tmp_path)
    yield arena
    arena.close()


def test_a_table_is_read_where_it_was_written(arena):
    reader = ArenaReader()
    placed = arena.place(table(1), 60)
    found = reader.open(placed)
    assert found.equals(table(1))
    numbers = found.column("tokens").chunk(0).to_numpy_ndarray()
    assert not numbers.flags.writeable
    assert not numbers.flags.owndata
    assert placed.size < found.nbytes + 64 * 1024


def test_slots_run_out_and_come_back(arena):
    reader = ArenaReader()
    first, second = arena.place(table(1), 60), arena.place(table(2), 60)
    assert arena.place(table(3), 60) is None
    reader.release(first)
    third = arena.place(table(3), 60)
    assert third.slot == first.slot
    assert reader.open(second).equals(table(2))
    assert reader.open(third).equals(table(3))


def test_a_late_reader_is_told(arena):
    reader = ArenaReader()
    first = arena.place(table(1), 60)
    reader.release(first)
    with pytest.raises(PayloadElsewhere):
        reader.open(first)
    second = arena.place(table(2), 60)
    with pytest.raises(PayloadElsewhere):
        reader.check(first)
    reader.release(first)  # late: it must not free what lies there now
    assert reader.open(second).equals(table(2))


def test_a_lease_ends_when_nobody_releases(arena):
    lost = [arena.place(table(seed), 0.05) for seed in range(2)]
    time.sleep(0.06)
    assert arena.place(table(3), 60) is not None
    with pytest.raises(PayloadElsewhere):
        ArenaReader().check(lost[0])


def test_a_lease_that_is_kept_goes_on(arena):
    reader = ArenaReader()
    placed = arena.place(table(1), 0.05)
    reader.keep(placed, 60)
    time.sleep(0.06)
    assert {arena.place(table(2), 60).slot} == {1 - placed.slot}
    assert arena.place(table(3), 60) is None
    assert reader.open(placed).equals(table(1))
    reader.release(placed)
    with pytest.raises(PayloadElsewhere):
        reader.keep(placed, 60)


@pytest.mark.parametrize("rows", [0, 1])
def test_small_tables_pass(arena, rows):
    assert ArenaReader().open(arena.place(table().slice(5, rows), 60)).equals(table().slice(5, rows))


def test_what_does_not_fit_is_left_to_the_caller(arena):
    assert arena.place(table(rows=1024), 60) is None
    crumbs = pa.concat_tables([table(rows=1)] * 400)  # the frames of so many batches take more than the slack
    assert arena.place(crumbs, 60) is None
    assert arena.place(table(1), 60) is not None


def test_memory_is_taken_by_use_and_given_back_when_idle(arena, monkeypatch):
    def taken():
        return sum(path.stat().st_blocks * 512 for path in folder.glob(f"{PREFIX}*"))

    folder = arena._path.parent
    start = taken()
    placed = arena.place(table(1), 60)
    assert taken() >= start + placed.size
    ArenaReader().release(placed)
    clock = time.monotonic()
    monkeypatch.setattr("app.arena.time.monotonic", lambda: clock + 3600)
    arena._have_pages = lambda slot, needed: False
    assert arena.place(table(1), 60) is None  # only trims
    assert taken() <= start + 8192


def test_no_memory_left_is_no_crash(arena, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.arena.os.posix_fallocate", full)
    assert arena.place(table(1), 60) is None


def test_a_file_of_another_node_is_told_apart(arena):
    placed = arena.place(table(1), 60)
    elsewhere = type(placed)(placed.file + "0", placed.slot, placed.generation, placed.offset, placed.size)
    with pytest.raises(PayloadElsewhere):
        ArenaReader().open(elsewhere)
    ArenaReader().release(elsewhere)


def own_an_arena(folder, ready):
    Arena(2, MIB, folder).place(table(1), 60)
    ready.set()
    time.sleep(60)


def test_the_file_of_a_killed_owner_is_removed_and_a_living_one_is_left(arena, tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    owner = context.Process(target=own_an_arena, args=(tmp_path, ready))
    owner.start()
    assert ready.wait(30)
    assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 2
    assert remove_orphans(tmp_path) == []
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert len(remove_orphans(tmp_path)) == 1
    assert list(tmp_path.glob(f"{PREFIX}*")) == [arena._path]
