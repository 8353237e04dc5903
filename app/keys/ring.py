"""The keys in force: finds the one that a request's secret opens, and follows the file as it changes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from app.config.auth import AuthConfig
from app.errors import ConfigError, Unauthenticated
from app.keys.file import KeyEntry, KeysFile, read_keys
from app.keys.meter import Meter
from app.keys.rights import Rights
from app.logs import logger
from app.metrics import Metrics

_log = logger("gateway")
#: How often the file is looked at. Kubernetes brings a changed Secret within a minute or so, by turning a link round.
_LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request with a valid key gets."""

    key_id: str
    rights: Rights
    meter: Meter


@dataclass(frozen=True, slots=True)
class Loaded:
    """Keys as they were read; ``keys`` None: none are asked for. ``state`` is the file's when it was read."""

    path: Path | None = None
    keys: KeysFile | None = None
    state: object = None


class Kept(Protocol):
    """Where the keys lie that were accepted last, by their hashes, for a replica that starts when the file is wrong."""

    def read(self) -> Any:
        """Return the record of them; None where there is none."""

    def write(self, record: Any) -> None:
        """Put another record, plain data, in its place."""


class Keys:
    """The keys of one gateway replica."""

    def __init__(
        self,
        metrics: Metrics,
        kept: Kept | None = None,
        look_seconds: float = _LOOK_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._kept = kept
        self._in_force = False
        self._look_seconds = look_seconds
        self._now = now
        self._loaded = Loaded()
        self._digests: list[tuple[bytes, float, Grant]] = []
        self._meters: dict[str, Meter] = {}
        self._watch: asyncio.Task[None] | None = None

    @property
    def on(self) -> bool:
        """Whether requests need a key."""
        return self._loaded.keys is not None

    async def load(self, config: AuthConfig) -> Loaded:
        """Return the keys that the settings name, read but not in force yet. Raises ConfigError.

        Where the file is wrong, they are those in force, so that it holds up no other setting; when a replica starts,
        those that were accepted last: a faulty Secret would otherwise stop nobody at first, and all service at the next
        restart.
        """
        if not config.enabled:
            return Loaded()
        path = Path(config.keys_file)
        try:
            return await asyncio.to_thread(_load, path)
        except ConfigError as error:
            if self._in_force:
                keys = self._loaded.keys if self._loaded.path == path else None
            else:
                keys = await asyncio.to_thread(self._read_kept)
            if keys is None:
                raise
            self._refused(error)
            return Loaded(path, keys, _state(path))

    def use(self, loaded: Loaded) -> None:
        """Put keys in force and follow their file."""
        self._take(loaded)
        self._in_force = True
        if self._watch is not None:
            self._watch.cancel()
        self._watch = asyncio.create_task(self._follow()) if self.on else None

    def close(self) -> None:
        """Stop to follow the file."""
        if self._watch is not None:
            self._watch.cancel()

    def grant(self, secret: str) -> Grant:
        """Return what the key with this secret gets. Raises Unauthenticated.

        Every known digest is compared, each in constant time and none skipped, so that the time taken says nothing of
        which came near; a thousand take a third of a millisecond.
        """
        digest = hashlib.sha256(secret.encode()).digest()
        found: tuple[float, Grant] | None = None
        for known, expires, grant in self._digests:
            if hmac.compare_digest(known, digest):
                found = expires, grant
        if found is None:
            raise Unauthenticated("This API key is not known: check the header Authorization: Bearer …")
        if 0 < found[0] <= self._now():
            raise Unauthenticated(f"This API key of {found[1].key_id} has expired: ask for a new one.")
        return found[1]

    def grant_of(self, key_id: str | None) -> Grant | None:
        """Return what the key with this id gets now, None where none is asked for. Raises Unauthenticated.

        For work that goes on after the request that began it: it needs a key where keys are on and was begun with one,
        and none where they are off and was begun without.
        """
        if not self.on and key_id is None:
            return None
        for _, expires, grant in self._digests:
            if grant.key_id == key_id and not 0 < expires <= self._now():
                return grant
        raise Unauthenticated("The API key that began this opens nothing any more: begin it anew with another one.")

    def _take(self, loaded: Loaded) -> None:
        entries = loaded.keys.keys if loaded.keys else ()
        gone = self._meters.keys() - {entry.id for entry in entries}
        for key_id in gone:  # a gauge cannot be taken back: 0 says that nothing is known
            self._metrics.set("baton_key_expires_timestamp_seconds", 0, key=key_id)
        self._meters = {entry.id: self._meter(entry) for entry in entries}
        digests = []
        for entry in entries:
            self._metrics.set("baton_key_expires_timestamp_seconds", entry.expires, key=entry.id)
            grant = Grant(entry.id, Rights(entry.scopes, entry.tenant), self._meters[entry.id])
            for secret in entry.secrets:
                ends = secret.expires.timestamp() if secret.expires else 0.0
                digests.append((bytes.fromhex(secret.hash.removeprefix("sha256:")), ends, grant))
        self._digests = digests
        self._loaded = loaded

    def _meter(self, entry: KeyEntry) -> Meter:
        """Return the key's meter: what it used stays used over a change of the file."""
        meter = self._meters.get(entry.id) or Meter(entry.limits)
        meter.limit(entry.limits)
        return meter

    async def _follow(self) -> None:
        path, seen = self._loaded.path, self._loaded.state
        await asyncio.to_thread(self._keep)
        while path is not None:
            await asyncio.sleep(self._look_seconds)
            state = await asyncio.to_thread(_state, path)
            if state != seen:
                seen = state
                await self._reload(path)

    async def _reload(self, path: Path) -> None:
        try:
            loaded = await asyncio.to_thread(_load, path)
        except ConfigError as error:
            self._refused(error)
            return
        self._take(loaded)
        _log.info("gateway: %d keys in force", len(loaded.keys.keys if loaded.keys else ()))
        await asyncio.to_thread(self._keep)

    def _refused(self, error: ConfigError) -> None:
        _log.error("gateway: keys refused, the old ones stay in force: %s", error)
        self._metrics.add("baton_config_refused_total", deployment="gateway")

    def _read_kept(self) -> KeysFile | None:
        try:
            record = self._kept.read() if self._kept else None
            return None if record is None else KeysFile.model_validate(record)
        except Exception as error:  # the refusal says more than a store that is away, or another Baton's record
            _log.warning("gateway: the keys accepted last cannot be read: %s", type(error).__name__)
            return None

    def _keep(self) -> None:
        if self._kept is None or self._loaded.keys is None:
            return
        try:
            self._kept.write(self._loaded.keys.model_dump(mode="json", by_alias=True))
        except Exception as error:  # they are in force all the same
            _log.warning("gateway: the accepted keys cannot be kept: %s", type(error).__name__)


def _load(path: Path) -> Loaded:
    # Before it is read: a file that changes meanwhile is then read once more, never once too seldom.
    state = _state(path)
    return Loaded(path, read_keys(path), state)


def _state(path: Path) -> object:
    """Return what tells one state of a file from the next: links are followed, since Kubernetes changes them only."""
    try:
        found = os.stat(path)
    except OSError as error:
        return type(error).__name__
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
