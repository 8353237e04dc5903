"""Models come from a hub into the cache with its checksums, and are found there when nobody may be asked."""

import shutil
from collections import namedtuple

import pytest
from huggingface_hub import constants, snapshot_download

from app.apps.backends.checkpoint import folder_of as backend_folder
from app.config.backends import SentimentBackend, SummaryBackend
from app.config.embedder import EmbedderConfig
from app.delivery.hub import pull_from_hub
from app.delivery.manifest import MANIFEST, Manifest, read_manifest, verify
from app.delivery.pull import find
from app.embedders.checkpoint import folder_of
from app.errors import ConfigError
from app.prompting.tokenizer import FILES as FILES_OF_TOKENIZERS
from app.testing.hub import FakeHub

WEIGHTS = bytes(range(256)) * 20_000
FILES = {
    "config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "deep/tokenizer.json": b"[]" * 900,
    "model.bin": b"x" * 5000,
    "README.md": b"An otter.",
    "tokenizer.model.v3": b"pieces",
}
MODEL = "otter/otter-small"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with FakeHub({MODEL: FILES}) as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield served


def pull(revision="main", model=MODEL):
    lines = []
    return pull_from_hub(model, revision, lines.append), lines


def test_a_model_comes_with_its_checksums_and_without_what_no_engine_reads(hub):
    folder, lines = pull()
    assert folder.name == hub.commit(MODEL)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert not (folder / "model.bin").exists()
    manifest = read_manifest(folder)
    assert set(manifest.files) == {"config.json", "deep/tokenizer.json", "model.safetensors", "tokenizer.model.v3"}
    assert (manifest.source, manifest.revision) == (MODEL, hub.commit(MODEL))
    assert verify(folder) == []
    assert lines == [
        f"{MODEL}: 4 files at revision {hub.commit(MODEL)[:12]}, 5.1 MB to fetch",
        f"{MODEL}: all 4 files are there and have the hub's checksums",
    ]


def test_again_no_file_is_fetched_and_one_that_is_gone_alone(hub):
    folder, _ = pull()
    files = [path for path in hub.requests if "/resolve/" in path]
    assert pull()[1][0].endswith(" 0.0 MB to fetch")
    assert [path for path in hub.requests if "/resolve/" in path] == files
    weights = folder / "model.safetensors"
    weights.resolve().unlink()
    weights.unlink()
    assert pull()[1][0].endswith(" 5.1 MB to fetch")
    assert verify(folder) == []


def test_a_connection_that_breaks_is_taken_up_where_it_broke(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500_000)  # else 10 MB, of which a break loses what it has
    hub.broken_after = 2_000_000
    folder, _ = pull()
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert {2_000_000, 4_000_000} <= set(hub.ranges)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_is_not_the_hubs_is_refused_removed_and_fetched_again(hub, name):
    hub.damaged.add(name)
    with pytest.raises(
        ConfigError, match=rf"{name} has not the checksum that the hub names and was removed: pull again"
    ):
        pull()
    hub.damaged.clear()
    folder, _ = pull()
    assert verify(folder) == []


@pytest.mark.parametrize(
    ("model", "revision", "words"),
    [
        ("otter/none", "main", r"has no such model, or it is private: correct the id, or set HF_TOKEN"),
        (MODEL, "v9", r"it has no revision 'v9': correct it"),
        ("a/b/c", "main", r"is no id of a hub"),
    ],
)
def test_what_the_hub_does_not_have(hub, model, revision, words):
    with pytest.raises(ConfigError, match=words):
        pull(revision, model)


def test_a_model_whose_owner_asks_for_consent(hub):
    hub.gated.add(MODEL)
    with pytest.raises(ConfigError, match="asks for consent"):
        pull()


def test_without_room_nothing_is_begun(hub, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1))
    with pytest.raises(ConfigError, match=r"has 0\.0 GB free and 0\.0 GB have to be fetched: make room"):
        pull()
    assert not [path for path in hub.requests if "/resolve/" in path]


def test_a_disk_that_fills_up_meanwhile(hub, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    with pytest.raises(ConfigError, match="No space left on device: is there room in HF_HUB_CACHE"):
        pull()


def test_a_cache_that_cannot_be_written_to_does_where_it_has_all(hub, monkeypatch):
    folder, _ = pull()
    (folder / MANIFEST).unlink()

    def sealed(*arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Manifest, "write", sealed)
    assert pull()[0] == folder
    (folder / "model.safetensors").resolve().unlink()
    monkeypatch.setattr("huggingface_hub.file_download._chmod_and_move", sealed)
    with pytest.raises(ConfigError, match="Read-only file system: is there room in HF_HUB_CACHE"):
        pull()


def test_a_model_with_weights_of_the_older_format_alone(hub):
    hub.models[MODEL] = {"config.json": b"{}", "pytorch_model.bin": WEIGHTS}
    folder, _ = pull()
    assert (folder / "pytorch_model.bin").read_bytes() == WEIGHTS


def test_a_hub_that_does_not_answer_is_told_unless_the_cache_has_all(hub, monkeypatch):
    folder, _ = pull()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    found, lines = pull()
    assert found == folder
    assert lines[0].endswith("The copy in the cache is whole and is used.")
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"the hub http://127\.0\.0\.1:9 does not answer \(ConnectError\)"):
        pull()


def test_a_hub_that_is_too_busy_keeps_nobody_from_a_whole_copy(hub):
    folder, _ = pull()
    hub.busy = True
    assert pull()[0] == folder
    with pytest.raises(ConfigError, match=r"answered 429: try again later"):
        pull(model="otter/none")


def test_what_was_pulled_is_all_that_the_embedder_the_backends_and_the_tokenizer_need(hub, monkeypatch):
    pulled, _ = pull()
    for offline in (True, False):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        assert folder_of(EmbedderConfig(source=MODEL, local_files_only=not offline)) == pulled
        assert backend_folder(SentimentBackend(source=MODEL, local_files_only=not offline), "sentiment") == pulled
    assert snapshot_download(MODEL, allow_patterns=list(FILES_OF_TOKENIZERS), local_files_only=True) == str(pulled)
    assert {path.name for path in pulled.iterdir()}.isdisjoint({"README.md", "model.bin"})


def test_verify_names_a_file_that_was_cut_off(hub):
    pulled, _ = pull()
    (pulled / "model.safetensors").resolve().write_bytes(b"short")
    assert find(MODEL) == pulled
    assert verify(pulled) == [f"model.safetensors has 5 bytes in place of {len(WEIGHTS)}"]
    with pytest.raises(ConfigError, match="is not in the local hub cache"):
        folder_of(EmbedderConfig(source=MODEL, local_files_only=True))


def test_what_is_not_in_the_cache_is_told_by_its_setting(hub):
    with pytest.raises(ConfigError, match=r"'otter/none' is not in the local hub cache: set embedder\.source"):
        folder_of(EmbedderConfig(source="otter/none", local_files_only=True))
    with pytest.raises(
        ConfigError, match=r"stages\.summary\.backend\.source 'otter/none' is not in the local hub cache"
    ):
        backend_folder(SummaryBackend(source="otter/none", local_files_only=True), "summary")
    for name in ("otter/none", "otter/no--ne"):
        with pytest.raises(ConfigError, match="does not lie whole in the hub's cache: pull it"):
            find(name)
    assert hub.requests == []


def test_offline_the_cache_is_enough_and_nobody_is_asked(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"does not lie whole in the cache .* HF_HUB_OFFLINE forbids to fetch it"):
        pull()
    assert hub.requests == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    folder, _ = pull()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.requests)
    assert pull() == (folder, [])
    (folder / "model.safetensors").resolve().unlink()
    with pytest.raises(ConfigError, match="does not lie whole"):
        pull()
    assert len(hub.requests) == asked
