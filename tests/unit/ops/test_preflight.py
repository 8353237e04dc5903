"""Each thing that would stop the pipeline from starting is one sentence that says what to change."""

import re
import socket

import pytest
import yaml

from app.config.local import ROOT, MachineConfig, load
from app.errors import ConfigError
from app.ops import apply, preflight, run

LOCAL = ROOT / "config" / "local.yaml"

GIB = 1024**3


def test_a_busy_port_names_the_port_and_the_option():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} .*--metrics-port"):
            preflight.check_port("127.0.0.1", port, "metrics_port")
    preflight.check_port("127.0.0.1", port, "metrics_port")


def test_too_little_memory_names_both_numbers():
    with pytest.raises(ConfigError, match=r"7\.0 GiB .* has 2\.0 GiB"):
        preflight.check_memory(2 * GIB, 7 * GIB)
    preflight.check_memory(8 * GIB, 7 * GIB)


def test_available_memory_is_read_from_the_kernel(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   64 kB\n")
    assert preflight.available_memory(meminfo) <= 64 * 1024


def test_a_full_disk_names_the_folder(tmp_path):
    with pytest.raises(ConfigError, match="--data"):
        preflight.check_disk(tmp_path / "not" / "there" / "yet", 1 << 60)
    preflight.check_disk(tmp_path, 1)


def test_a_small_shared_memory_says_how_to_enlarge_it():
    with pytest.raises(ConfigError, match="shm-size"):
        preflight.check_shared_memory(1 << 60)


def test_one_port_for_two_things_is_refused(tmp_path):
    machine = MachineConfig(port=26010, metrics_port=26010)
    with pytest.raises(ConfigError, match="--port 26010, --metrics-port 26010"):
        preflight.check(machine, tmp_path)


def test_grpc_needs_a_port_of_its_own(tmp_path):
    with pytest.raises(ConfigError, match="--port 26010, --grpc-port 26010"):
        preflight.check(MachineConfig(port=26010, grpc_port=26010), tmp_path)


def test_an_address_of_another_machine_is_told_apart_from_a_busy_port():
    with pytest.raises(ConfigError, match="address of this machine"):
        preflight.check_port("192.0.2.254", 26010, "port")


def test_a_collection_that_is_not_there_is_named_before_anything_starts():
    with pytest.raises(ConfigError, match=r"collections\.notes .*nowhere"):
        preflight.check_collections({"docs": "samples/docs", "notes": "nowhere"})


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (
            lambda raw: raw["models"][0]["engine"]["model_loading_config"].update(model_source="/nowhere/model"),
            r"models\[0\]\.engine\.model_loading_config\.model_source",
        ),
        (
            lambda raw: raw["pipeline"]["models"]["smollm2"].update(tokenizer="{data}/models/smollm"),
            r"pipeline\.models\.smollm2\.tokenizer",
        ),
        (
            lambda raw: raw["pipeline"]["models"]["smollm2"].update(chatTemplate="nowhere.jinja"),
            r"pipeline\.models\.smollm2\.chatTemplate",
        ),
        (lambda raw: raw["pipeline"]["embedder"].update(source="./nowhere"), r"pipeline\.embedder\.source"),
        (
            lambda raw: raw["settings"]["guardrail"]["policies"]["default"].update(termsFiles=["nowhere.txt"]),
            r"policies\.default\.termsFiles\[0\]\.path",
        ),
        (
            lambda raw: raw["settings"]["guardrail"]["policies"]["default"].update(
                classifier={"path": "/nowhere", "labels": ["bad"]}
            ),
            r"policies\.default\.classifier\.path",
        ),
    ],
)
def test_a_folder_or_file_that_is_not_there_is_named_before_anything_starts(change, key, tmp_path, capsys):
    raw = yaml.safe_load(LOCAL.read_text())
    change(raw)
    path = tmp_path / "local.yaml"
    path.write_text(yaml.safe_dump(raw))
    assert apply.main(["--config", str(path), "--data", str(tmp_path)]) == 2
    assert re.search(rf"{key} names .*(nowhere|smollm).*, which does not exist", capsys.readouterr().err)


def test_what_a_start_prepares_and_ids_of_models_need_not_be_there(tmp_path):
    config = load(LOCAL, tmp_path)
    preflight.check_files(config, run.prepared_models(tmp_path))
    named = config.pipeline.embedder.model_copy(update={"source": "owner/model"})
    other = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"embedder": named})})
    preflight.check_files(other, run.prepared_models(tmp_path))
    with pytest.raises(ConfigError, match="model_source"):
        preflight.check_files(config, ())
    loading = {"model_loading_config": {"model_id": "m", "model_source": "s3://bucket/models/m"}}
    elsewhere = config.models[0].model_copy(update={"engine": loading})
    preflight.check_files(config.model_copy(update={"models": [elsewhere]}), run.prepared_models(tmp_path))


def test_nothing_to_apply_to_is_said(tmp_path, capsys):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert apply.main(["--data", str(tmp_path), "--dashboard-port", str(port)]) == 2
    assert "make run" in capsys.readouterr().err


def test_a_second_run_in_a_folder_is_refused_until_the_first_one_ends(tmp_path):
    with preflight.held(tmp_path / "data"):
        refused = pytest.raises(ConfigError, match=r"Another run works in .*data: stop it, or pass another folder")
        with refused, preflight.held(tmp_path / "data"):
            pass
        with preflight.held(tmp_path / "other"):
            pass
    with preflight.held(tmp_path / "data"):  # the lock's file stays, and hinders nobody
        pass


def test_a_data_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match="data cannot be written to"), preflight.held(tmp_path / "data"):
        pass
