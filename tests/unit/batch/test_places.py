"""Where a batch lies: what is written there is whole or not there."""

import os
import time

import pytest
from pyarrow import fs

from app.batch import places
from app.batch.places import Place


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A folder in place of an object store."""
    monkeypatch.setattr(places, "_store", lambda uri: (fs.LocalFileSystem(), str(tmp_path / uri.rpartition("/")[2])))
    return tmp_path


@pytest.mark.parametrize("kind", ["file", "object"])
def test_what_fails_half_way_leaves_what_was_there(store, kind):
    place = Place.parse(str(store / "out.jsonl") if kind == "file" else "s3://rows/out.jsonl")
    with place.writing() as sink:
        sink.write(b"one\n")

    def fail():
        with place.writing() as sink:
            sink.write(b"two\n")
            raise OSError("the disk failed")

    with pytest.raises(OSError, match="the disk failed"):
        fail()
    with place.open() as found:
        assert found.read() == b"one\n"
    assert [path.name for path in store.iterdir()] == ["out.jsonl"]


def test_what_a_killed_run_left_beside_its_output_goes_with_the_next(tmp_path):
    old, fresh, other = (tmp_path / f".{name}" for name in ("o.jsonl.0123abcd", "o.jsonl.0123abce", "p.jsonl.0123abcd"))
    for path in (old, fresh, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (time.time() - 7200,) * 2)
    with Place.parse(str(tmp_path / "o.jsonl")).writing() as sink:
        sink.write(b"one\n")
    assert {path.name for path in tmp_path.iterdir()} == {fresh.name, other.name, "o.jsonl"}
