"""The file of keys: what it may hold, and that its faults quote no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.errors import ConfigError
from app.keys.file import hash_of, new_secret, read_keys
from app.keys.rights import Rights

SECRET = "bt-" + "s" * 43
HASH = hash_of(SECRET)


def write(folder: Path, *keys: dict[str, Any]) -> Path:
    path = folder / "keys.yaml"
    path.write_text(yaml.safe_dump({"keys": list(keys)}))
    return path


def entry(**changes: Any) -> dict[str, Any]:
    return {"id": "shop", "secrets": [{"hash": HASH}]} | changes


def test_a_key_that_says_nothing_of_scopes_has_none(tmp_path: Path) -> None:
    (key,) = read_keys(write(tmp_path, entry())).keys
    assert (key.id, key.tenant, key.scopes.models, key.scopes.collections) == ("shop", "", (), ())
    assert (key.scopes.ingest, key.scopes.drop, key.limits.concurrency, key.expires) == (False, False, None, 0)


def test_json_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [entry(limits={"tokensPerMinute": 5})]}))
    assert read_keys(path).keys[0].limits.tokens_per_minute == 5


@pytest.mark.parametrize(
    ("ends", "known"),
    [
        (["2027-01-01T00:00:00Z"], 1798761600),
        (["2027-01-01T00:00:00Z", "2026-12-31T00:00:00+00:00"], 1798761600),
        (["2027-01-01T00:00:00Z", None], 0),
    ],
)
def test_a_key_lives_as_long_as_its_last_secret(tmp_path: Path, ends: list[str | None], known: float) -> None:
    secrets = [{"hash": hash_of(str(n)), "expires": end} for n, end in enumerate(ends)]
    assert read_keys(write(tmp_path, entry(secrets=secrets))).keys[0].expires == known


def test_a_scope_may_name_an_adapter_of_a_model(tmp_path: Path) -> None:
    (key,) = read_keys(write(tmp_path, entry(scopes={"models": ["llama:sql"]}))).keys
    assert Rights(key.scopes).sees_model("llama:sql")
    assert not Rights(key.scopes).sees_model("llama")


WRONG = {
    "a secret in place of its hash": (entry(secrets=[{"hash": SECRET}]), "keys[0].secrets[0].hash: must be sha256:"),
    "no secret": (entry(secrets=[]), "keys[0].secrets"),
    "an unknown key": (entry(scope={}), "keys[0].scope: there is no such key"),
    "an unknown scope": (entry(scopes={"admin": True}), "keys[0].scopes.admin"),
    "a scope that is no pattern": (entry(scopes={"models": ["a b"]}), "must be a name, or one with *"),
    "a time without a zone": (entry(secrets=[{"hash": HASH, "expires": "2027-01-01T00:00:00"}]), "timezone"),
    "an id with blanks": (entry(id="my key"), "keys[0].id: must be 1 to 63 small letters"),
    "a tenant with a slash": (entry(tenant="a/b"), "keys[0].tenant"),
    "no concurrency": (entry(limits={"concurrency": 0}), "keys[0].limits.concurrency"),
    "text for true": (entry(scopes={"ingest": "yes"}), "must be true or false, without quotes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_and_nothing_of_it_is_quoted(tmp_path: Path, name: str) -> None:
    wrong, sentence = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read_keys(write(tmp_path, wrong))
    assert sentence in caught.value.message
    assert SECRET not in caught.value.message
    assert "sss" not in caught.value.message


def test_an_id_and_a_hash_stand_once(tmp_path: Path) -> None:
    other = entry(secrets=[{"hash": hash_of("other")}])
    with pytest.raises(ConfigError, match="the id 'shop' stands twice"):
        read_keys(write(tmp_path, entry(), other))
    with pytest.raises(ConfigError, match="same hash"):
        read_keys(write(tmp_path, entry(), entry(id="bar")))


def test_a_file_that_is_empty_or_not_there_says_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_keys(tmp_path / "keys.yaml")
    (tmp_path / "keys.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"app\.ops\.keys new"):
        read_keys(tmp_path / "keys.yaml")


@pytest.mark.parametrize("text", [SECRET, f"[{SECRET}]", f"keys: {SECRET}", f"keys: [{SECRET}]", f'"{SECRET}'])
def test_a_secret_that_was_mounted_by_mistake_is_not_quoted(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_keys(tmp_path / "keys.yaml")
    assert "sss" not in caught.value.message


def test_secrets_are_long_and_never_the_same() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert {len(secret) for secret in made} == {46}
