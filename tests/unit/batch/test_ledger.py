"""What is done of a batch outlives whatever ends the run."""

import errno

import pytest

from app.batch.ledger import Busy, Ledger, Record, failure
from app.errors import Conflict, InvalidRequest, StageUnavailable

BAD = InvalidRequest("no", "batch")


def record(row, **more):
    return Record(row, f"id-{row}", 200, "r", {"n": row}, **more)


def test_records_come_back_in_the_rows_order_after_a_new_start(tmp_path):
    with Ledger(tmp_path / "p") as ledger:
        for row in (2, 0, 5):
            ledger.add(record(row))
    with Ledger(tmp_path / "p") as ledger:
        assert [found.row for found in ledger.records()] == [0, 2, 5]
        assert ledger.done == 3
        assert [row for row in range(7) if ledger.has(row)] == [0, 2, 5]


@pytest.mark.parametrize("torn", [1, 10, 40])
def test_a_line_that_a_kill_tore_is_asked_again_and_the_others_stay(tmp_path, torn):
    with Ledger(tmp_path / "p") as ledger:
        ledger.add(record(0))
        ledger.add(record(1))
    log = tmp_path / "p" / "done.jsonl"
    log.write_bytes(log.read_bytes()[:-torn])
    with Ledger(tmp_path / "p") as ledger:
        assert (ledger.has(0), ledger.has(1)) == (True, False)
        ledger.add(record(1))
    with Ledger(tmp_path / "p") as ledger:
        assert [found.row for found in ledger.records()] == [0, 1]


def test_what_is_no_whole_record_is_cut_off_with_what_comes_after_it(tmp_path):
    with Ledger(tmp_path / "p") as ledger:
        for row in range(3):
            ledger.add(record(row))
    log = tmp_path / "p" / "done.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"row":1', b"\0\0\0\0\0\0\0"))
    with Ledger(tmp_path / "p") as ledger:
        assert [row for row in range(3) if ledger.has(row)] == [0]
        ledger.add(record(1))
        assert [found.row for found in ledger.records()] == [0, 1]


def test_a_disk_that_fails_keeps_no_lock(tmp_path, monkeypatch):
    def fail(number):
        raise OSError("no space")

    ledger = Ledger(tmp_path / "p").__enter__()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="no space"):
            ledger.close()
    with Ledger(tmp_path / "p"):
        pass


def test_of_a_row_that_was_tried_again_the_later_record_counts(tmp_path):
    with Ledger(tmp_path / "p") as ledger:
        ledger.add(failure(0, "a", BAD))
        ledger.add(failure(1, "b", BAD))
        assert ledger.has(0)
        assert not ledger.has(0, retry_failed=True)
        ledger.add(record(0))
    with Ledger(tmp_path / "p") as ledger:
        assert (ledger.done, ledger.failed) == (2, 1)
        assert [found.failed for found in ledger.records()] == [False, True]
        assert [found.row for found in ledger.records(lambda failed: failed)] == [1]


def test_another_input_is_refused_with_a_sentence(tmp_path):
    with Ledger(tmp_path / "p") as ledger:
        ledger.claim({"input": "one"})
        ledger.claim({"input": "one"})
        with pytest.raises(Conflict, match=r"progress of another batch \(its input differs\): bring the old"):
            ledger.claim({"input": "two"})


def test_two_runs_never_share_a_batch(tmp_path):
    with Ledger(tmp_path / "p"), pytest.raises(Busy, match="Another process works on"), Ledger(tmp_path / "p"):
        pass
    with Ledger(tmp_path / "p"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_storage_without_locks_is_told_as_such(tmp_path, monkeypatch, number):
    def fail(*_):
        raise OSError(number, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(
        StageUnavailable, match=r"cannot be locked \(No locks available\): keep it on storage with flock"
    ):
        Ledger(tmp_path / "p").lock()
