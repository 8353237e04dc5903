"""The folder of files and batches is tried before settings that name it are in force."""

import pytest

from app.batch.store import check_folder
from app.config.batches import BatchesConfig
from app.errors import ConfigError


def test_a_folder_is_made_where_it_is_to_be_used_and_nothing_is_left_in_it(tmp_path):
    config = BatchesConfig(folder=str(tmp_path / "volume" / "batches"))
    check_folder(config, make=False)
    assert not (tmp_path / "volume").exists()
    check_folder(config, make=True)
    assert list((tmp_path / "volume" / "batches").iterdir()) == []


@pytest.mark.parametrize("make", [True, False])
@pytest.mark.parametrize("place", ["file", "file/below", "a\0b", "x" * 300])
def test_a_folder_that_cannot_be_used_is_refused_with_a_sentence(tmp_path, place, make):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"^settings\.batches\.folder names .* where no files can be kept \(.+\): name"
    ):
        check_folder(BatchesConfig(folder=str(tmp_path / place)), make)


def test_a_folder_that_cannot_be_locked_is_refused(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(ConfigError, match=r"\(No locks available\)"):
        check_folder(BatchesConfig(folder=str(tmp_path)), make=True)
    check_folder(BatchesConfig(), make=True)
