"""The ingestion command as a user runs it, over LanceDB and the fake embedder."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.config.retrieval import StoreConfig
from app.errors import ConfigError
from app.ops.ingest import embedder_config, main, store_config
from app.stores.lancedb import LanceStore

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("---\ntitle: Zebra\nlang: en\n---\n# Stripes\nThe zebra has stripes.")
    (docs / "b.txt").write_text("斑马住在草原上。")
    (docs / "c.jsonl").write_text("\n".join(json.dumps({"id": f"j{n}", "text": f"row {n}", "n": n}) for n in range(5)))
    return docs


def run(tmp_path, *arguments, embedder="fake:16"):
    given = [str(argument) for argument in arguments]
    return main(["--store", str(tmp_path / "index"), "--embedder", embedder, "--collection", "docs", *given])


def stored(tmp_path, name="docs"):
    store = LanceStore(StoreConfig(uri=str(tmp_path / "index")))
    store.start()
    return sorted(store.document_ids(name))


def test_a_folder_is_stored_and_a_second_run_changes_nothing(folder, tmp_path, capsys):
    assert run(tmp_path, folder) == 0
    assert capsys.readouterr().out.startswith(
        "docs: 7 documents stored (7 passages), 0 unchanged, 0 repeated, 0 bad rows"
    )
    assert stored(tmp_path) == ["a.md", "b.txt", "j0", "j1", "j2", "j3", "j4"]
    assert run(tmp_path, folder) == 0
    assert "0 documents stored (0 passages), 7 unchanged" in capsys.readouterr().out
    assert main(["--store", str(tmp_path / "index"), "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["docs", "7", "7", "16", "ok"]


def test_bad_rows_are_told_and_the_others_stored(folder, tmp_path, capsys):
    lines = ['{"id": "j9", "text": "nine"}', "{broken", '{"id": "j9", "text": "other"}', '{"id": "j9", "text": "nine"}']
    (folder / "d.jsonl").write_text("\n".join(lines))
    assert run(tmp_path, folder) == 1
    output = capsys.readouterr()
    assert "bad row: d.jsonl:2: is not JSON" in output.err
    assert "bad row: d.jsonl:3: the id 'j9' is that of another document already (d.jsonl:1)" in output.err
    assert "8 documents stored (8 passages), 0 unchanged, 1 repeated, 2 bad rows" in output.out


def test_a_folder_of_other_files_is_no_success(tmp_path, capsys):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.pdf").write_bytes(b"%PDF")
    assert run(tmp_path, tmp_path / "papers") == 1
    assert "papers: holds no file of a known kind (.jsonl, " in capsys.readouterr().err


def test_missing_documents_are_deleted_on_demand_only(folder, tmp_path, capsys):
    assert run(tmp_path, folder) == 0
    (folder / "c.jsonl").unlink()
    assert run(tmp_path, folder) == 0
    assert len(stored(tmp_path)) == 7
    (folder / "bad.jsonl").write_text("{")
    assert run(tmp_path, folder, "--delete-missing") == 1
    assert len(stored(tmp_path)) == 7
    assert "nothing was deleted" in capsys.readouterr().err
    (folder / "bad.jsonl").unlink()
    assert run(tmp_path, folder, "--delete-missing") == 0
    assert stored(tmp_path) == ["a.md", "b.txt"]


def test_an_empty_collection_is_made(tmp_path, capsys):
    assert run(tmp_path, "--create-empty") == 0
    assert capsys.readouterr().out == "docs: ready\n"
    assert stored(tmp_path) == []


def test_faults_are_one_sentence_and_code_3(folder, tmp_path, capsys):
    assert run(tmp_path, "--create-empty", embedder="fake:7") == 0
    capsys.readouterr()
    assert run(tmp_path, folder) == 3
    error = capsys.readouterr().err
    assert error.startswith("ingest: Collection 'docs' holds vectors of 7 numbers but the embedder makes 16")
    assert error.count("\n") == 1
    assert run(tmp_path, folder, embedder=str(tmp_path / "no model")) == 3
    assert "no model" in capsys.readouterr().err
    (tmp_path / "index" / "docs.lance" / "_versions").rename(tmp_path / "gone")
    assert run(tmp_path, folder) == 3
    assert "cannot be read" in capsys.readouterr().err
    assert main(["--url", "http://127.0.0.1:1", "--list"]) == 3
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--store", "x"], "--collection is required"),
        (["--store", "x", "--collection", "c", "."], "--embedder is required"),
        (["--store", "x", "--collection", "c", "--embedder", "fake"], "name at least one file"),
        (["--store", "x", "--collection", "c", "--embedder", "fake", "nowhere.txt"], "nowhere.txt does not exist"),
        (["--url", "http://x", "--collection", "c", "--delete-missing", "."], "--delete-missing: only with --store"),
        (["--store", "x", "--url", "http://x", "--list"], "not allowed with"),
        (["--store", "x", "--collection", "c", "--embedder", "fake", "ftp://h/a.md"], "'ftp://h/a.md' is an address"),
        (["--url", "ftp://x", "--list"], "--url: 'ftp://x' is no address: write it like http://"),
        (["--store", "x", "--collection", "c", "--embedder", "fake", "--create-empty", "."], "stores nothing"),
        (
            ["--store", "x", "--collection", "c", "--embedder", "fake", "--batch", "0", "."],
            "--batch: must be a whole number from 1",
        ),
    ],
)
def test_wrong_usage_is_code_2(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_uris_tell_the_kind_of_store():
    assert store_config("s3://bucket/index").kind == "lancedb"
    with pytest.raises(ConfigError, match="uri begins with ftp://, which lancedb does not read; it reads s3://"):
        store_config("ftp://host/index")
    assert store_config("postgresql://host/base", "PW").model_dump()["secret_env"] == "PW"
    assert store_config("qdrant+http://host:6333").uri == "http://host:6333"
    assert embedder_config("fake").dimension is None
    assert embedder_config("/models/e5").source == "/models/e5"


def test_a_killed_run_is_taken_up_again(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"id": f"d{n:03}", "text": f"zebra number {n} " * 30}) for n in range(400)))
    index = tmp_path / "index"
    command = [
        sys.executable,
        "-m",
        "app.ops.ingest",
        "--store",
        index,
        "--embedder",
        "fake:256",
        "--collection",
        "docs",
    ]
    with subprocess.Popen([*map(str, command), "--batch", "8", str(rows)], cwd=ROOT) as child:
        deadline = time.monotonic() + 90
        while len(list(index.glob("docs.lance/_versions/*"))) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
    half = stored(tmp_path)
    assert 0 < len(half) < 400
    assert run(tmp_path, rows, embedder="fake:256") == 0
    assert len(stored(tmp_path)) == 400
    assert f"{400 - len(half)} documents stored" in capsys.readouterr().out
