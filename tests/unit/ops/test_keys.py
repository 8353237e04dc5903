"""The command that makes keys: a secret is shown once, and never taken from the command line."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import yaml

from app.keys.file import KeysFile, hash_of, read_keys
from app.ops import keys

WRONG = [["--id", "a b"], ["--id", "a", "--tenant", "/"]]


def test_a_key_without_a_file_prints_its_secret_and_an_entry_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    assert keys.main(["new", "--id", "shop"]) == 0
    printed = capsys.readouterr()
    (entry,) = KeysFile.model_validate(yaml.safe_load(printed.err)).keys
    assert entry.secrets[0].hash == hash_of(printed.out.strip())
    assert (entry.scopes.models, entry.scopes.ingest, entry.expires) == (("*",), False, 0)
    assert printed.out.strip() not in printed.err


def test_keys_are_added_to_a_file_that_only_its_owner_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.yaml"
    assert keys.main(["new", "--id", "one", "--file", str(path), "--days", "30", "--tenant", "red"]) == 0
    options = ["--collections", "red-*", "docs", "--models", "--ingest", "--drop", "--concurrency", "2"]
    assert keys.main(["new", "--id", "two", "--file", str(path), *options, "--tokens-per-minute", "9"]) == 0
    first, second = read_keys(path).keys
    assert (first.id, first.tenant, first.expires > 0) == ("one", "red", True)
    assert (second.scopes.models, second.scopes.collections) == ((), ("red-*", "docs"))
    assert (second.scopes.ingest, second.scopes.drop) == (True, True)
    assert (second.limits.concurrency, second.limits.tokens_per_minute) == (2, 9)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["keys.yaml"]
    printed = capsys.readouterr()
    assert len(printed.out.split()) == 2
    assert not any(secret in path.read_text() + printed.err for secret in printed.out.split())


def test_an_id_is_taken_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.yaml"
    keys.main(["new", "--id", "one", "--file", str(path)])
    before = path.read_text()
    assert keys.main(["new", "--id", "one", "--file", str(path)]) == 1
    assert path.read_text() == before
    assert "To rotate its secret" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", WRONG)
def test_a_key_that_the_gateway_would_refuse_is_not_made(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert keys.main(["new", *wrong]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("keys: this key: ")


def test_a_hash_is_made_of_what_stands_on_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("x" * 40 + "\n"))
    assert keys.main(["hash"]) == 0
    assert capsys.readouterr().out == hash_of("x" * 40) + "\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("hunter2"))
    assert keys.main(["hash"]) == 1
    printed = capsys.readouterr()
    assert "7 characters" in printed.err
    assert "hunter2" not in printed.err


def test_a_list_shows_what_keys_may_and_no_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.yaml"
    keys.main(["new", "--id", "one", "--file", str(path), "--days", "0", "--ingest"])
    path.write_text(path.read_text() + "- id: two\n  secrets: [{hash: '" + hash_of("x") + "'}]\n")
    capsys.readouterr()
    assert keys.main(["list", "--file", str(path)]) == 0
    _, one, two = capsys.readouterr().out.splitlines()
    assert "(over)" in one
    assert one.endswith("models *; profiles *; collections *; ingest")
    assert two.split() == ["two", "-", "1", "never", "nothing"]
    path.write_text("keys: 3")
    assert keys.main(["list", "--file", str(path)]) == 1
