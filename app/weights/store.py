"""Where versions of weights are kept, and how a new one is published: only what changed is shipped."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from app.errors import Conflict, bounded
from app.weights.snapshot import FileRegion, Packed, Snapshot, TensorEntry, digest_of
from app.weights.tensors import Bytes, Content

#: A tensor of at least this size is an object of its own, freed with the last version that has it; smaller ones of one
#: publication share an object: a call per bias would cost more than the bias.
_OWN_OBJECT_BYTES = 1 << 18
_ALIGNMENT = 64
#: How long others wait for whoever said that it would publish.
CLAIM_SECONDS = 60.0
_POLL_SECONDS = 0.02


class WeightStore(Protocol):
    """Keeps the current version of each model; older ones live as long as somebody holds their snapshot."""

    def current(self, model: str, unless: str = "") -> Snapshot | None:
        """Return the version in force; None when there is none, or when its digest is ``unless``."""
        ...

    def claim(self, model: str, source: str) -> Snapshot | bool:
        """Return the version made from ``source``; True when the caller is to publish it, False when another is."""
        ...

    def abandon(self, model: str) -> None:
        """Give a claim back: publishing failed."""
        ...

    def commit(self, snapshot: Snapshot) -> None:
        """Put a version in force. Raises :class:`Conflict` unless it follows the one that is."""
        ...

    def put(self, arrays: Sequence[Bytes]) -> list[Any]:
        """Store bytes; returns a reference to each array."""
        ...

    def get(self, references: Sequence[Any]) -> list[Bytes]:
        """Return stored bytes, mapped read-only where the store can."""
        ...


@dataclass(frozen=True, slots=True)
class Publication:
    """A version that was put in force, and what that took."""

    snapshot: Snapshot
    shipped_bytes: int
    shipped: tuple[str, ...]


class Shelf:
    """The state of a store: one current version per model, and who is about to publish the next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._current: dict[str, Snapshot] = {}
        # One content may come from several sources: files of another node, say, with another date.
        self._sources: dict[str, dict[str, Snapshot]] = {}
        self._claims: dict[str, float] = {}
        self._clock = clock

    def current(self, model: str, unless: str) -> Snapshot | None:
        """Return the version in force, or None when its digest is ``unless``."""
        found = self._current.get(model)
        return None if found is None or found.digest == unless else found

    def claim(self, model: str, source: str) -> Snapshot | bool:
        """Do as :meth:`WeightStore.claim` says; a claim lapses after ``CLAIM_SECONDS``."""
        found = self._sources.get(model, {}).get(source)
        if found is not None:
            return found
        now = self._clock()
        if self._claims.get(model, now) > now:
            return False
        self._claims[model] = now + CLAIM_SECONDS
        return True

    def abandon(self, model: str) -> None:
        """Let the next caller of :meth:`claim` publish."""
        self._claims.pop(model, None)

    def commit(self, snapshot: Snapshot) -> None:
        """Put a version in force."""
        found = self._current.get(snapshot.model)
        version = 0 if found is None else found.version
        again = found is not None and found.digest == snapshot.digest
        if snapshot.version != (version if again else version + 1):
            raise Conflict(
                f"weights of {bounded(snapshot.model)}: version {snapshot.version} does not follow version {version}, "
                "which is in force: publish again",
                "retriever",
            )
        known = self._sources.get(snapshot.model, {}) if again else {}
        self._sources[snapshot.model] = known | {snapshot.source: snapshot}
        self._current[snapshot.model] = snapshot
        self.abandon(snapshot.model)


class ProcessStore:
    """A store inside this process: stages that share the process share the weights."""

    def __init__(self) -> None:
        self._shelf = Shelf()
        self._lock = threading.Lock()

    def current(self, model: str, unless: str = "") -> Snapshot | None:
        """Return the version in force, or None when its digest is ``unless``."""
        with self._lock:
            return self._shelf.current(model, unless)

    def claim(self, model: str, source: str) -> Snapshot | bool:
        """Return the version made from ``source``, or whether the caller is to publish it."""
        with self._lock:
            return self._shelf.claim(model, source)

    def abandon(self, model: str) -> None:
        """Give a claim back."""
        with self._lock:
            self._shelf.abandon(model)

    def commit(self, snapshot: Snapshot) -> None:
        """Put a version in force."""
        with self._lock:
            self._shelf.commit(snapshot)

    def put(self, arrays: Sequence[Bytes]) -> list[Bytes]:
        """Keep private copies: whoever owns the arrays may write to them later."""
        kept = [array.copy() for array in arrays]
        for array in kept:
            array.flags.writeable = False
        return kept

    def get(self, references: Sequence[Bytes]) -> list[Bytes]:
        """Return the arrays themselves."""
        return list(references)


def wait_for(store: WeightStore, model: str, source: str) -> Snapshot | None:
    """Return the version made from ``source``, waiting for whoever publishes it; None when the caller is to do so."""
    while True:
        found = store.claim(model, source)
        if isinstance(found, Snapshot):
            return found
        if found:
            return None
        time.sleep(_POLL_SECONDS)


def publish(store: WeightStore, model: str, source: str, contents: Mapping[str, Content]) -> Publication:
    """Put ``contents`` in force as the next version, shipping only bytes that the current one has not.

    What is the same in all tensors keeps its version, and is known by another source from then on.
    Raises :class:`Conflict` when another version was published meanwhile.
    """
    base = store.current(model)
    places = _places(base)
    missing = _missing(contents, places)
    groups = _grouped(missing)
    packed = [_packed([missing[key][1] for key in group]) for group in groups]
    packs = dict(base.packs) if base else {}
    fresh = itertools.count(max(packs, default=-1) + 1)
    for group, (_, offsets), reference in zip(groups, packed, store.put([array for array, _ in packed]), strict=True):
        number = next(fresh)
        packs[number] = reference
        places.update({key: Packed(number, offset) for key, offset in zip(group, offsets, strict=True)})
    tensors = {name: _entry(content, places) for name, content in contents.items()}
    used = {entry.place.pack for entry in tensors.values() if isinstance(entry.place, Packed)}
    digest = digest_of(tensors)
    version = base.version if base else 0
    snapshot = Snapshot(
        model=model,
        version=version if base and base.digest == digest else version + 1,
        source=source,
        tensors=tensors,
        packs={number: reference for number, reference in packs.items() if number in used},
        digest=digest,
    )
    store.commit(snapshot)
    return Publication(snapshot, sum(size for _, size in missing), tuple(name for name, _ in missing.values()))


#: Bytes by their digest and size: a tensor that another one, or an older version, has too is stored once.
_Key = tuple[str, int]


def _places(base: Snapshot | None) -> dict[_Key, Packed]:
    entries = () if base is None else base.tensors.values()
    return {(entry.digest, entry.nbytes): entry.place for entry in entries if isinstance(entry.place, Packed)}


def _missing(contents: Mapping[str, Content], places: Mapping[_Key, Packed]) -> dict[_Key, tuple[str, Bytes]]:
    found: dict[_Key, tuple[str, Bytes]] = {}
    for name, content in contents.items():
        key = (content.digest, content.nbytes)
        if not isinstance(content.data, FileRegion) and key not in places:
            found.setdefault(key, (name, content.data))
    return found


def _entry(content: Content, places: Mapping[_Key, Packed]) -> TensorEntry:
    place = content.data if isinstance(content.data, FileRegion) else places[content.digest, content.nbytes]
    return TensorEntry(content.shape, content.dtype, content.nbytes, content.digest, place)


def _grouped(missing: Mapping[_Key, tuple[str, Bytes]]) -> list[list[_Key]]:
    small = [key for key in missing if key[1] < _OWN_OBJECT_BYTES]
    return [*([small] if small else []), *([key] for key in missing if key[1] >= _OWN_OBJECT_BYTES)]


def _packed(arrays: Sequence[Bytes]) -> tuple[Bytes, list[int]]:
    """Return the arrays behind one another, each aligned as torch likes it, and where each begins."""
    if len(arrays) == 1:
        return arrays[0], [0]
    steps = [-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]
    offsets = [0, *itertools.accumulate(steps)]
    whole = np.zeros(offsets.pop(), np.uint8)
    for array, offset in zip(arrays, offsets, strict=True):
        whole[offset : offset + array.nbytes] = array
    return whole, offsets
