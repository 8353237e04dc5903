"""What a folder of model files holds: SHA-256 and size of every file, written when they came, checked whenever asked.

The file lies in the folder itself, so it travels with a volume, an image or a web server, and needs no hub.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from app.errors import ConfigError, bounded

#: Its name in the folder. No hidden one: web servers keep those to themselves.
MANIFEST = "baton-manifest.json"
#: What a file is called while it comes in.
PARTIAL = ".partial"
_BLOCK = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileFacts:
    """SHA-256 in hexadecimal, and the size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where the files came from (``revision`` is the hub's commit, else empty), and what they are, by relative path."""

    source: str
    revision: str
    files: Mapping[str, FileFacts]

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all files together."""
        return sum(facts.size for facts in self.files.values())

    def write(self, folder: Path) -> None:
        """Put the manifest into the folder, whole or not at all."""
        files = {name: {"sha256": facts.sha256, "bytes": facts.size} for name, facts in sorted(self.files.items())}
        # Pods that share a volume may write the same one at once.
        temporary = folder / f"{MANIFEST}.{uuid4().hex}{PARTIAL}"
        content = {"source": self.source, "revision": self.revision, "files": files}
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        temporary.chmod(0o644)
        temporary.replace(folder / MANIFEST)

    def fits(self, folder: Path) -> bool:
        """Tell whether every file is there with its size: what is looked at where reading all would take minutes."""
        try:
            return all((folder / name).stat().st_size == facts.size for name, facts in self.files.items())
        except OSError:
            return False


def parse_manifest(raw: bytes, where: str) -> Manifest:
    """Return a manifest from its file. Raises :class:`ConfigError` for another file, or one with paths outside."""
    try:
        content = json.loads(raw)
        files = {
            str(name): FileFacts(str(facts["sha256"]), int(facts["bytes"])) for name, facts in content["files"].items()
        }
        found = Manifest(str(content["source"]), str(content["revision"]), files)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{bounded(where, 300)} is not a manifest of model files: pull the model anew.", "models"
        ) from None
    for name, facts in found.files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name or not name.isprintable():
            raise ConfigError(f"{bounded(where, 300)} names a file outside of its folder: {bounded(name)}.", "models")
        if facts.size < 0:
            raise ConfigError(f"{bounded(where, 300)} tells no size of {bounded(name)}: pull the model anew.", "models")
    return found


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, None where it has none."""
    try:
        raw = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    return parse_manifest(raw, str(folder / MANIFEST))


def verify(folder: Path, read: Callable[[int], None] = lambda count: None) -> list[str]:
    """Read every file of a folder's manifest; return one sentence for each that is missing or another one.

    ``read`` is told the bytes as they are read. Raises :class:`ConfigError` when the folder has no manifest.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise ConfigError(
            f"{bounded(str(folder), 300)} has no {MANIFEST}: pull the model, which writes it, then verify.", "models"
        )
    return list(_faults(folder, manifest, read))


def _faults(folder: Path, manifest: Manifest, read: Callable[[int], None]) -> Iterator[str]:
    for name, facts in manifest.files.items():
        try:
            size = (folder / name).stat().st_size
            digest = digest_of(folder / name, read) if size == facts.size else None
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"
            continue
        if digest is None:
            yield f"{name} has {size} bytes in place of {facts.size}"
        elif digest != facts.sha256:
            yield f"{name} has the checksum {digest[:12]}… in place of {facts.sha256[:12]}…"


def digest_of(path: Path, read: Callable[[int], None] = lambda count: None, into: Iterable[Any] = ()) -> str:
    """Return a file's SHA-256 in hexadecimal; hashes in ``into`` take the same bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            for each in (digest, *into):
                each.update(block)
            read(len(block))
    return digest.hexdigest()


def model_files(folder: Path) -> list[str]:
    """Return the relative paths of a folder's files, without the manifest and what is hidden or half there."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name != MANIFEST and not name.startswith(".") and not name.endswith(PARTIAL):
                found.append((Path(place) / name).relative_to(folder).as_posix())
    return found
