"""One version of a model's weights: which tensors it has, what is in them, and where their bytes lie."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import ConfigError, bounded


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes of a file that are used as the file holds them.

    Mapped from there they are one copy per node already (the page cache), and only what is read becomes resident.
    """

    path: str
    offset: int
    size: int
    modified_ns: int

    def check(self, model: str) -> None:
        """Raise :class:`ConfigError` when the file is not the one that was published."""
        try:
            found = Path(self.path).stat()
        except OSError:
            raise ConfigError(f"weights of {bounded(model)}: {bounded(self.path, 300)} is gone: restore it") from None
        if (found.st_size, found.st_mtime_ns) != (self.size, self.modified_ns):
            raise ConfigError(
                f"weights of {bounded(model)}: {bounded(self.path, 300)} changed after it was published: publish again"
            )


@dataclass(frozen=True, slots=True)
class Packed:
    """Bytes of an object of the store, which the snapshot's ``packs`` know by this number."""

    pack: int
    offset: int


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor. ``digest`` tells its bytes from others."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    digest: str
    place: FileRegion | Packed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a model's weights, immutable. ``packs`` are references into the store, by number.

    ``source`` is the fingerprint of what it was loaded from; ``digest`` that of all its tensors: two snapshots with one
    digest are the same weights, whatever their versions say (a store that was lost begins to count anew).
    """

    model: str
    version: int
    source: str
    tensors: Mapping[str, TensorEntry]
    packs: Mapping[int, Any]
    digest: str

    def entry(self, name: str) -> TensorEntry:
        """Return one tensor's entry. Raises :class:`ConfigError` when there is none."""
        found = self.tensors.get(name)
        if found is None:
            raise ConfigError(
                f"weights of {bounded(self.model)}: version {self.version} has no tensor {bounded(name)}: "
                "publish the whole model again"
            )
        return found

    def check_replaces(self, old: Snapshot) -> None:
        """Raise :class:`ConfigError` unless this has the tensors of ``old``, of the same shapes and dtypes."""
        start = f"weights of {bounded(self.model)}: version {self.version}"
        stop = f"replicas stay on version {old.version} until they are restarted"
        for name, entry in old.tensors.items():
            new = self.tensors.get(name)
            if new is None:
                raise ConfigError(f"{start} has no tensor {bounded(name)}: {stop}")
            if name != SKELETON and (new.shape, new.dtype) != (entry.shape, entry.dtype):
                raise ConfigError(
                    f"{start} has {bounded(name)} as {new.dtype}{list(new.shape)}, not as "
                    f"{entry.dtype}{list(entry.shape)}: {stop}"
                )
        extra = next((name for name in self.tensors if name not in old.tensors), None)
        if extra is not None:
            raise ConfigError(f"{start} has a new tensor {bounded(extra)}: {stop}")


#: The name under which a module without its tensors is kept beside them.
SKELETON = "(skeleton)"


def digest_of(tensors: Mapping[str, TensorEntry]) -> str:
    """Return one fingerprint for all tensors."""
    whole = hashlib.sha256()
    for name in sorted(tensors):
        whole.update(f"{name}\0{tensors[name].digest}\n".encode())
    return whole.hexdigest()
