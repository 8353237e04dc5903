"""The weights' store on Ray: an actor knows the versions and owns their bytes, which lie in the nodes' object stores.

A replica maps the bytes from the object store of its own node; Ray brings them there once per node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from app.errors import StageUnavailable
from app.weights.snapshot import Snapshot
from app.weights.store import Shelf
from app.weights.tensors import Bytes

_NAME = "baton-weights"
_NAMESPACE = "baton"
_CALL_SECONDS = 60.0


class WeightKeeper:
    """The actor. It owns what is stored: bytes owned by a replica would be lost with the replica."""

    def __init__(self) -> None:
        self._shelf = Shelf()

    def current(self, model: str, unless: str) -> Snapshot | None:
        """Return the version in force, or None when its digest is ``unless``."""
        return self._shelf.current(model, unless)

    def claim(self, model: str, source: str) -> Snapshot | bool:
        """Return the version made from ``source``, or whether the caller is to publish it."""
        return self._shelf.claim(model, source)

    def abandon(self, model: str) -> None:
        """Give a claim back."""
        self._shelf.abandon(model)

    def commit(self, snapshot: Snapshot) -> None:
        """Put a version in force; what only the one before it needed is freed once no replica maps it."""
        self._shelf.commit(snapshot)

    def put(self, data: Bytes) -> list[Any]:
        """Store bytes; the reference comes in a list, since Ray would resolve a bare one."""
        return [ray.put(data)]


class RayStore:
    """A :class:`app.weights.store.WeightStore` whose bytes lie in Ray's object store.

    The actor is started by whoever needs it first and lives as long as the cluster; when it died, so is the next one.
    """

    def __init__(self) -> None:
        self._keeper: Any = None

    def current(self, model: str, unless: str = "") -> Snapshot | None:
        """Return the version in force, or None when its digest is ``unless``."""
        found: Snapshot | None = self._call("current", model, unless)
        return found

    def claim(self, model: str, source: str) -> Snapshot | bool:
        """Return the version made from ``source``, or whether the caller is to publish it."""
        found: Snapshot | bool = self._call("claim", model, source)
        return found

    def abandon(self, model: str) -> None:
        """Give a claim back: publishing failed."""
        self._call("abandon", model)

    def commit(self, snapshot: Snapshot) -> None:
        """Put a version in force. Raises :class:`app.errors.Conflict`."""
        self._call("commit", snapshot)

    def put(self, arrays: Sequence[Bytes]) -> list[Any]:
        """Store bytes in objects that the actor owns.

        One after the other, since each passes through the store as an argument first: never is there more than one
        array twice.
        """
        return [self._call("put", array)[0] for array in arrays]

    def get(self, references: Sequence[Any]) -> list[Bytes]:
        """Return the bytes, mapped read-only from this node's object store."""
        found: list[Bytes] = self._wait(list(references))
        return found

    def _call(self, method: str, *arguments: Any) -> Any:
        keeper = self._keeper = self._keeper or _connect()
        return self._wait(getattr(keeper, method).remote(*arguments))

    def _wait(self, references: Any) -> Any:
        try:
            return ray.get(references, timeout=_CALL_SECONDS)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.RayError, TimeoutError) as error:
            self._keeper = None
            raise StageUnavailable(f"The store of weights does not answer ({type(error).__name__}).") from error


def _connect() -> Any:
    options = {"name": _NAME, "namespace": _NAMESPACE, "get_if_exists": True, "lifetime": "detached", "num_cpus": 0}
    return ray.remote(WeightKeeper).options(**options).remote()
