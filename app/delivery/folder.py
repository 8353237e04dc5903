"""Models from a web folder or another folder of this machine, by its manifest.

A file comes in under a name of its own beside its place, goes on from there after a break, and is moved into its place
when its checksum is right.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from app.delivery.manifest import (
    MANIFEST,
    PARTIAL,
    FileFacts,
    Manifest,
    digest_of,
    model_files,
    parse_manifest,
    read_manifest,
)
from app.delivery.progress import Progress, Say
from app.errors import ConfigError, bounded

#: Tries without a new byte before a server is given up, and the pause between two.
_TRIES = 5
_PAUSE_SECONDS = 1.0
_TIMEOUT = httpx.Timeout(30.0)
_BLOCK = 1024 * 1024

#: Yields a file's bytes from a place on. First the place where it really begins: 0 from servers that know no ranges.
Source = Callable[[str, int], Iterator[bytes | int]]


def pull_from_url(url: str, folder: Path, say: Say) -> Path:
    """Fill ``folder`` with the files that ``<url>/baton-manifest.json`` lists, and return it.

    Raises :class:`ConfigError`: no manifest there, a server that fails, no room, a file that is not the listed one.
    """
    base = url.rstrip("/")
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client:
        try:
            answer = client.get(f"{base}/{MANIFEST}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _failed(base, f"its server does not answer ({type(error).__name__})") from None
        if not answer.is_success:
            raise _failed(base, f"its server answered {answer.status_code} to {MANIFEST}, which `pull` writes")
        return _pull(parse_manifest(answer.content, f"{base}/{MANIFEST}"), base, folder, _web(client, base), say)


def pull_from_path(source: Path, folder: Path | None, say: Say) -> Path:
    """Copy a folder of model files into another one and return that; with None, leave them where they are.

    A folder without a manifest gets one where it ends up.
    """
    if not source.is_dir():
        raise _failed(str(source), "there is no such folder")
    try:
        manifest = _manifest_of(source, say)
    except OSError as error:
        raise _failed(str(source), f"{error.filename or source} cannot be read ({error.strerror})") from None
    if folder is None or folder.resolve() == source.resolve():
        _write(manifest, source)
        return source
    return _pull(manifest, str(source), folder, _disk(source), say)


def _manifest_of(source: Path, say: Say) -> Manifest:
    manifest = read_manifest(source)
    if manifest is None:
        names = model_files(source)
        if not names:
            raise _failed(str(source), "it holds no files")
        say(f"{source}: reading {len(names)} files for their checksums")
        files = {name: FileFacts(digest_of(source / name), (source / name).stat().st_size) for name in names}
        manifest = Manifest(str(source), "", files)
    return manifest


def _pull(manifest: Manifest, what: str, folder: Path, source: Source, say: Say) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_room(manifest, folder)
        progress = Progress(what, manifest.total_bytes, say)
        for name, facts in manifest.files.items():
            _bring(what, name, facts, folder / name, source, progress)
        _write(manifest, folder)
    except OSError as error:
        raise _failed(what, f"{error.strerror or error} in {folder}") from error
    say(f"{what}: all {len(manifest.files)} files are in {folder} and have their checksums")
    return folder


def _write(manifest: Manifest, folder: Path) -> None:
    try:
        manifest.write(folder)
    except OSError as error:
        raise _failed(
            str(folder), f"{MANIFEST} cannot be written there ({error.strerror}): name a folder by --out"
        ) from error


def _check_room(manifest: Manifest, folder: Path) -> None:
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    needed, free = manifest.total_bytes - there, shutil.disk_usage(folder).free
    if needed > free:
        raise _failed(str(folder), f"{needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB free: make room")


def _bring(what: str, name: str, facts: FileFacts, place: Path, source: Source, progress: Progress) -> None:
    if place.is_file() and place.stat().st_size == facts.size and digest_of(place) == facts.sha256:
        progress.add(facts.size, there=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(place.name + PARTIAL)
    resumed = _fill(what, name, facts, partial, source, progress)
    right = digest_of(partial) == facts.sha256
    if resumed and not right:
        # What lay there was of another version of the file.
        partial.unlink()
        progress.add(-facts.size)
        _fill(what, name, facts, partial, source, progress)
        right = digest_of(partial) == facts.sha256
    if not right:
        partial.unlink()
        raise _failed(what, f"{name} has not the checksum of the manifest: the copy there is damaged")
    partial.chmod(0o644)
    partial.replace(place)


def _fill(what: str, name: str, facts: FileFacts, partial: Path, source: Source, progress: Progress) -> bool:
    """Bring a partial file to its full size; tell whether it went on from bytes that lay there."""
    before = partial.stat().st_size if partial.is_file() else 0
    if before > facts.size:
        partial.unlink()
        before = 0
    progress.add(before, there=True)
    tries = _TRIES
    with partial.open("ab") as file:
        while file.tell() < facts.size:
            start = file.tell()
            try:
                _copy(source(name, start), file, facts.size, progress)
                broken = ""
            except httpx.HTTPError as error:
                broken = f"its server broke off ({type(error).__name__})"
            tries = tries - 1 if file.tell() <= start else _TRIES
            if tries == 0:
                raise _failed(what, f"{name}: {broken or 'its server sends no more'}; what came is kept, pull again")
            if file.tell() < facts.size:
                time.sleep(_PAUSE_SECONDS)
    return before > 0


def _copy(pieces: Iterator[bytes | int], file: Any, size: int, progress: Progress) -> None:
    for piece in pieces:
        if isinstance(piece, int):
            progress.add(piece - file.tell(), there=True)
            file.truncate(piece)
            file.seek(piece)
            continue
        rest = size - file.tell()
        file.write(piece[:rest])
        progress.add(min(len(piece), rest))
        if len(piece) >= rest:
            return


def _web(client: httpx.Client, base: str) -> Source:
    def read(name: str, start: int) -> Iterator[bytes | int]:
        # Ranges count bytes of what is sent, so it must not be compressed.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with client.stream("GET", f"{base}/{quote(name)}", headers=headers) as answer:
            if answer.status_code not in (200, 206):
                raise _failed(base, f"its server answered {answer.status_code} to {name}")
            yield start if answer.status_code == 206 else 0
            yield from answer.iter_raw()

    return read


def _disk(source: Path) -> Source:
    def read(name: str, start: int) -> Iterator[bytes | int]:
        with (source / name).open("rb") as file:
            file.seek(start)
            yield start
            while block := file.read(_BLOCK):
                yield block

    return read


def _failed(what: str, reason: str) -> ConfigError:
    return ConfigError(f"The model files of {bounded(what, 300)} cannot be had: {reason}.", "models")
