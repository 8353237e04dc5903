"""What a loader calls to share a model's weights, and what keeps them current while requests run."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.delivery.manifest import MANIFEST
from app.errors import BatonError, ConfigError, StageUnavailable
from app.logs import logger
from app.weights.snapshot import Packed, Snapshot
from app.weights.store import ProcessStore, WeightStore, publish, wait_for
from app.weights.tensors import put_together, take_apart

log = logger("weights")

#: How often a replica asks whether there is a newer version: a call of under 2 ms, off the requests' way.
_FOLLOW_SECONDS = 1.0
_process_store = ProcessStore()


@dataclass(frozen=True, slots=True)
class Held:
    """A version and its module. A request takes it once and so runs on one version from end to end."""

    store: WeightStore
    snapshot: Snapshot
    module: Any


def node_store() -> WeightStore:
    """Return the store of this node: Ray's where this process belongs to a cluster, else the process's own."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return _process_store
    from app.deployments.weight_store import RayStore

    return RayStore()


def fingerprint(folder: Path, how: str) -> str:
    """Return what tells one content of a model's folder from another, and one way of loading it (``how``)."""
    whole = hashlib.sha256(how.encode())
    for path in sorted(folder.glob("*")):
        if path.is_file() and not path.name.startswith(MANIFEST):
            status = path.stat()
            whole.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return whole.hexdigest()


def share(store: WeightStore, model: str, source: str, load: Callable[[], Any]) -> Held:
    """Return the shared module of ``source``; the first caller loads it and publishes it, the others map it.

    ``load`` returns a torch module on the CPU, ready for inference. Raises what it raises, and :class:`ConfigError`
    when the module cannot be shared.
    """
    snapshot = wait_for(store, model, source)
    if snapshot is None:
        try:
            snapshot = publish(store, model, source, take_apart(load())).snapshot
        except BaseException:
            with contextlib.suppress(StageUnavailable):
                store.abandon(model)
            raise
        _return_memory()
    return Held(store, snapshot, open_snapshot(store, snapshot))


def open_snapshot(store: WeightStore, snapshot: Snapshot) -> Any:
    """Return the module of a snapshot, mapped. Raises :class:`ConfigError` when its tensors are not all there."""
    numbers = sorted({entry.place.pack for entry in snapshot.tensors.values() if isinstance(entry.place, Packed)})
    missing = [number for number in numbers if number not in snapshot.packs]
    if missing:
        name = next(n for n, e in snapshot.tensors.items() if isinstance(e.place, Packed) and e.place.pack in missing)
        raise ConfigError(f"weights of {snapshot.model!r}: version {snapshot.version} lacks the bytes of {name!r}")
    arrays = store.get([snapshot.packs[number] for number in numbers])
    return put_together(snapshot, dict(zip(numbers, arrays, strict=True)))


class Follower:
    """Hands each newer version to ``adopt``, which puts it in the place of the old one by assigning one attribute.

    Requests under way keep the module that they took. A version that does not fit is refused and logged, and the one
    in force stays. Whoever uses the model keeps the follower: with it ends the asking.
    """

    def __init__(self, held: Held, adopt: Callable[[Held], None]) -> None:
        self.held = held
        self._adopt = adopt
        self._said = ""
        self._stop = threading.Event()

    def start(self) -> None:
        """Ask for newer versions from now on."""
        arguments = (weakref.ref(self), self._stop)
        threading.Thread(target=_follow, args=arguments, name="baton-weights", daemon=True).start()

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()

    def refresh(self) -> bool:
        """Adopt the version in force if it has other weights; returns whether it had.

        Raises :class:`ConfigError` when it does not fit.
        """
        store, old = self.held.store, self.held.snapshot
        found = store.current(old.model, unless=old.digest)
        if found is None:
            return False
        found.check_replaces(old)
        self.held = Held(store, found, open_snapshot(store, found))
        self._adopt(self.held)
        return True

    def try_refresh(self) -> None:
        """Do what :meth:`refresh` does, but log what is wrong, once: requests go on with the weights in use."""
        try:
            if self.refresh():
                log.info("weights of %s: version %d", self.held.snapshot.model, self.held.snapshot.version)
        except Exception as error:  # the store is away, or the version does not fit
            reason = str(error) if isinstance(error, BatonError) else type(error).__name__
            if reason != self._said:
                log.warning("the weights in use stay: %s", reason)
            self._said = reason


def _follow(reference: weakref.ref[Follower], stop: threading.Event) -> None:
    while not stop.wait(_FOLLOW_SECONDS):
        follower = reference()
        if follower is None:
            return
        follower.try_refresh()
        # Held through the wait, it would never go.
        del follower


def _return_memory() -> None:
    """Give the private copy back to the system; the C library would keep it for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
