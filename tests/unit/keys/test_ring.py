"""The keys in force: which secret opens what, and how a changed file comes into force."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.auth import AuthConfig
from app.errors import ConfigError, RateLimitExceeded, Unauthenticated
from app.keys.file import hash_of
from app.keys.ring import Keys
from app.metrics import MemoryMetrics

NOW = 1_800_000_000.0
EARLIER, LATER = "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"


class Kept:
    """What replicas share, as plain data."""

    def __init__(self) -> None:
        self.text = "null"

    def read(self) -> Any:
        return json.loads(self.text)

    def write(self, record: Any) -> None:
        self.text = json.dumps(record)


class Ring:
    """Keys over a file as Kubernetes mounts it: a link to a folder that is put in place of the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = MemoryMetrics()
        self.kept = Kept()
        self.keys = self.replica()
        self.config = AuthConfig(enabled=True, keys_file=str(folder / "data" / "keys.yaml"))
        self.states = 0

    def replica(self) -> Keys:
        return Keys(self.metrics, self.kept, 0.01, lambda: NOW)

    def mount(self, text: str) -> None:
        self.states += 1
        target = self.folder / f"state-{self.states}"
        target.mkdir()
        (target / "keys.yaml").write_text(text)
        fresh = self.folder / "fresh"
        fresh.symlink_to(target)
        os.replace(fresh, self.folder / "data")

    def write(self, *keys: dict[str, Any]) -> None:
        self.mount(yaml.safe_dump({"keys": list(keys)}))

    async def start(self) -> None:
        self.keys.use(await self.keys.load(self.config))

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - the file is looked at by the clock
                await asyncio.sleep(0.01)

    def opens(self, secret: str) -> str:
        try:
            return self.keys.grant(secret).key_id
        except Unauthenticated:
            return ""


@pytest.fixture
async def ring(tmp_path: Path) -> AsyncIterator[Ring]:
    found = Ring(tmp_path)
    yield found
    found.keys.close()


def key(name: str, *secrets: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "secrets": [{"hash": hash_of(secret)} for secret in secrets], **more}


async def test_each_of_a_keys_secrets_opens_it_and_no_other_does(ring: Ring) -> None:
    ring.write(key("one", "old", "new"), key("two", "other", tenant="acme"))
    await ring.start()
    assert [ring.opens(secret) for secret in ("old", "new", "other")] == ["one", "one", "two"]
    assert [ring.opens(secret) for secret in ("", "OLD", "old ", hash_of("old"), "ä")] == [""] * 5
    assert ring.keys.grant("other").rights.tenant == "acme"


async def test_a_secret_stops_at_its_time_and_its_key_lives_on(ring: Ring) -> None:
    secrets = [{"hash": hash_of("old"), "expires": EARLIER}, {"hash": hash_of("new"), "expires": LATER}]
    ring.write({"id": "one", "secrets": secrets})
    await ring.start()
    assert ring.opens("new") == "one"
    with pytest.raises(Unauthenticated, match="of one has expired"):
        ring.keys.grant("old")
    assert ring.metrics.total("baton_key_expires_timestamp_seconds", key="one") == 1830297600


async def test_a_changed_file_comes_into_force_and_what_was_used_stays_used(ring: Ring) -> None:
    limits = {"limits": {"tokensPerMinute": 10, "concurrency": 1}}
    ring.write(key("one", "first", **limits), key("gone", "second"))
    await ring.start()
    ring.keys.grant("first").meter.charge(1000)
    ring.write(key("one", "third", **limits))
    await ring.until(lambda: ring.opens("third"))
    assert (ring.opens("first"), ring.opens("second")) == ("", "")
    with pytest.raises(RateLimitExceeded):
        ring.keys.grant("third").meter.check_tokens()


async def test_a_wrong_file_is_refused_as_a_whole_told_once_and_mended(
    ring: Ring, caplog: pytest.LogCaptureFixture
) -> None:
    ring.write(key("one", "first"))
    await ring.start()
    with caplog.at_level(logging.ERROR, "baton"):
        ring.mount("keys: [{id: one, secrets: [{hash: bt-plain-secret}]}]")
        await ring.until(lambda: ring.metrics.total("baton_config_refused_total", deployment="gateway"))
        await asyncio.sleep(0.1)
    assert ring.metrics.total("baton_config_refused_total") == 1
    assert ring.opens("first") == "one"
    assert "keys refused, the old ones stay in force" in caplog.text
    assert "bt-plain-secret" not in caplog.text
    ring.write(key("two", "second"))
    await ring.until(lambda: ring.opens("second"))
    assert ring.opens("first") == ""


async def test_a_file_that_goes_away_leaves_the_keys_in_force(ring: Ring) -> None:
    ring.write(key("one", "first"))
    await ring.start()
    (ring.folder / "data").unlink()
    await ring.until(lambda: ring.metrics.total("baton_config_refused_total"))
    assert ring.opens("first") == "one"


async def test_a_replica_that_starts_while_the_file_is_wrong_takes_the_keys_accepted_last(ring: Ring) -> None:
    ring.write(key("one", "first"))
    await ring.start()
    ring.write(key("two", "second", limits={"concurrency": 3}))
    await ring.until(lambda: "two" in ring.kept.text)
    ring.mount("keys: broken")
    ring.keys.close()
    ring.keys = ring.replica()
    await ring.start()
    assert (ring.opens("first"), ring.opens("second")) == ("", "two")
    assert ring.metrics.total("baton_config_refused_total") >= 1
    assert "second" not in ring.kept.text
    ring.write(key("three", "third"))
    await ring.until(lambda: ring.opens("third"))


async def test_a_wrong_file_holds_up_no_other_setting_but_another_file_must_be_right(ring: Ring) -> None:
    ring.write(key("one", "first"))
    await ring.start()
    ring.mount("keys: broken")
    await ring.start()
    assert ring.opens("first") == "one"
    with pytest.raises(ConfigError):
        await ring.keys.load(AuthConfig(enabled=True, keys_file=str(ring.folder / "other.yaml")))
    ring.write(key("two", "second"))
    await ring.until(lambda: ring.opens("second"))


async def test_settings_turn_keys_on_and_off_and_a_file_that_is_not_there_refuses_them(ring: Ring) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        await ring.keys.load(ring.config)
    assert not ring.keys.on
    ring.write(key("one", "first"))
    await ring.start()
    assert ring.keys.on
    ring.keys.use(await ring.keys.load(AuthConfig()))
    assert not ring.keys.on
    assert ring.opens("first") == ""


async def test_a_key_that_is_gone_has_no_known_end(ring: Ring) -> None:
    ring.write({"id": "one", "secrets": [{"hash": hash_of("a"), "expires": LATER}]})
    await ring.start()
    ring.write(key("two", "b"))
    await ring.until(lambda: ring.opens("b"))
    assert ring.metrics.total("baton_key_expires_timestamp_seconds") == 0
