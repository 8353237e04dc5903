"""Models from a Hugging Face hub or its mirror into the local cache, with huggingface_hub, checked file by file.

The library compares sizes. Here every file's SHA-256 (or, for small ones, git's own checksum) is compared with what the
hub names, once, when it came. Offline, or where the hub does not answer, a whole copy in the cache is taken as it is.
"""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from app.delivery.manifest import MANIFEST, FileFacts, Manifest, digest_of, read_manifest
from app.delivery.progress import Progress, Say
from app.errors import ConfigError, bounded

#: What engines, encoders and tokenizers look for; the same weights in other formats stay on the hub.
PATTERNS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py", "*.tiktoken", "tokenizer*", "vocab*")
#: The older format of weights, for models that have no other.
_OLD_WEIGHTS = "*.bin"
#: A hub's answer to many nodes that start at once.
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class _Listed:
    """A file as the hub lists it: ``sha256`` of large files, ``git`` (the blob's SHA-1) of small ones; else empty."""

    size: int
    sha256: str
    git: str


def pull_from_hub(model: str, revision: str, say: Say) -> Path:
    """Return the folder of a model in the cache (``HF_HUB_CACHE``), fetched as far as it is not there.

    Raises :class:`ConfigError` with a sentence: no such model or revision, no consent, no room, no hub, a file that is
    not the hub's.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return _cached(model, revision)
    try:
        return _fetch(model, revision, say)
    except Exception as error:
        sentence, silent = _reason(error, model, revision)
        if sentence is None:
            raise
        if silent and (folder := whole_copy(model, revision)) is not None:
            say(f"{model}: {sentence} The copy in the cache is whole and is used.")
            return folder
        raise ConfigError(f"The model {bounded(model, 200)} cannot be fetched: {sentence}", "models") from None


def find_in_cache(model: str, revision: str = "main") -> Path | None:
    """Return the folder of a model in the cache, None where it is not there or not whole. Nobody is asked."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(PATTERNS), local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _cached(model: str, revision: str) -> Path:
    from huggingface_hub import constants

    folder = whole_copy(model, revision)
    if folder is None:
        raise ConfigError(
            f"The model {bounded(model, 200)} does not lie whole in the cache {constants.HF_HUB_CACHE}, and "
            "HF_HUB_OFFLINE forbids to fetch it: pull it where the hub can be reached, or unset HF_HUB_OFFLINE.",
            "models",
        )
    return folder


def whole_copy(model: str, revision: str = "main") -> Path | None:
    """Return the folder of a model in the cache, None where files are missing or, by its manifest, half there."""
    folder = find_in_cache(model, revision)
    manifest = None if folder is None else read_manifest(folder)
    return None if folder is None or (manifest is not None and not manifest.fits(folder)) else folder


def _fetch(model: str, revision: str, say: Say) -> Path:
    from huggingface_hub import HfApi, constants, snapshot_download

    info = HfApi().model_info(model, revision=revision, files_metadata=True)
    patterns = _patterns([each.rfilename for each in info.siblings or ()])
    listed = {each.rfilename: _listed(each) for each in info.siblings or () if _matches(each.rfilename, patterns)}
    missing = _missing_bytes(model, info.sha or "", listed)
    _check_room(Path(constants.HF_HUB_CACHE), missing)
    progress = Progress(model, missing, say)
    say(f"{model}: {len(listed)} files at revision {(info.sha or '')[:12]}, {missing / 1e6:.1f} MB to fetch")
    bar = _bar(progress)
    folder = Path(snapshot_download(model, revision=revision, allow_patterns=patterns, tqdm_class=bar))
    if folder.name != info.sha:
        raise _Changed
    _check(model, folder, listed)
    say(f"{model}: all {len(listed)} files are there and have the hub's checksums")
    return folder


class _Changed(Exception):
    """The revision points to another commit than when its files were listed."""


class _Damaged(Exception):
    """A file is not the one that the hub lists; it was removed."""


def _patterns(names: Sequence[str]) -> list[str]:
    new = any(fnmatch(name, "*.safetensors") for name in names)
    return [*PATTERNS] if new else [*PATTERNS, _OLD_WEIGHTS]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return name != MANIFEST and any(fnmatch(name, pattern) for pattern in patterns)


def _listed(sibling: Any) -> _Listed:
    sha256 = sibling.lfs.sha256 if sibling.lfs is not None else ""
    return _Listed(sibling.size or 0, sha256, "" if sha256 else sibling.blob_id or "")


def _missing_bytes(model: str, commit: str, listed: Mapping[str, _Listed]) -> int:
    from huggingface_hub import try_to_load_from_cache

    there = {name for name in listed if isinstance(try_to_load_from_cache(model, name, revision=commit), str)}
    return sum(facts.size for name, facts in listed.items() if name not in there)


def _check_room(cache: Path, needed: int) -> None:
    place = next(path for path in (cache, *cache.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise ConfigError(
            f"The cache {cache} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB have to be fetched: make room, "
            "or point HF_HUB_CACHE (modelCache) to a larger volume.",
            "models",
        )


def _check(model: str, folder: Path, listed: Mapping[str, _Listed]) -> None:
    """Compare every file with what the hub lists and write the manifest, unless that was done for this revision."""
    known = read_manifest(folder)
    if known is not None and known.files.keys() == listed.keys() and known.fits(folder):
        return
    files = {}
    for name, facts in listed.items():
        path = folder / name
        size = path.stat().st_size
        git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        sha256 = digest_of(path, into=[git])
        if (facts.sha256 and facts.sha256 != sha256) or (facts.git and facts.git != git.hexdigest()):
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise _Damaged(name)
        files[name] = FileFacts(sha256, size)
    Manifest(model, folder.name, files).write(folder)


def _bar(progress: Progress) -> type[Any]:
    """Return a progress bar for huggingface_hub that draws nothing and counts what is written to disk."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread that watches it
        _lock = threading.RLock()  # its own is one of multiprocessing as well

        def __init__(self, *arguments: Any, **options: Any) -> None:
            # The bytes of the network are counted by a bar of their own, with compression taken off.
            self._counts = options.get("unit") == "B" and "Reconstructing" in str(options.get("desc"))
            super().__init__(*arguments, **{**options, "disable": False, "file": io.StringIO()})

        def update(self, n: float | None = 1) -> bool | None:
            if self._counts:
                progress.add(int(n or 0))
            self.n += n or 0
            return None

        def display(self, msg: str | None = None, pos: int | None = None) -> bool:
            return True

    return Bar


def _reason(error: Exception, model: str, revision: str) -> tuple[str | None, bool]:
    """Return a sentence on what hindered a fetch, None where it is not known; and whether the hub did not answer."""
    from huggingface_hub import constants, errors

    cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
    endpoint = constants.ENDPOINT
    if isinstance(cause, errors.GatedRepoError):
        return "its owner asks for consent: give it on the hub, and set HF_TOKEN from a Secret (secretEnv).", False
    if isinstance(cause, errors.RepositoryNotFoundError):
        where = f"{endpoint} has no such model, or it is private"
        return f"{where}: correct the id, or set HF_TOKEN from a Secret (secretEnv).", False
    if isinstance(cause, errors.RevisionNotFoundError):
        return f"it has no revision {bounded(revision)}: correct it.", False
    if isinstance(cause, errors.HfHubHTTPError):
        status = cause.response.status_code
        return f"the hub {endpoint} answered {status}: try again later.", status >= 500 or status == _TOO_MANY
    if isinstance(cause, errors.HFValidationError):
        return f"{bounded(model)} is no id of a hub, which looks like owner/name.", False
    return _local_reason(cause, endpoint)


def _local_reason(cause: BaseException, endpoint: str) -> tuple[str | None, bool]:
    from huggingface_hub import errors

    # The HTTP library's root: which one it is changes with huggingface_hub's version.
    http_error: type[Exception] = errors.HfHubHTTPError.__mro__[1]
    if isinstance(cause, http_error):
        return (
            f"the hub {endpoint} does not answer ({type(cause).__name__}): is HF_ENDPOINT (modelCache.mirror) right?",
            True,
        )
    if isinstance(cause, _Damaged):
        return f"{cause} has not the checksum that the hub names and was removed: pull again.", False
    if isinstance(cause, _Changed):
        return "it changed while it was fetched: pull again.", False
    if isinstance(cause, OSError):
        if "Consistency check failed" in str(cause):
            return "a file came with another size than the hub names: pull again.", False
        told = cause.strerror or type(cause).__name__
        sealed = cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        return f"{told}: is there room in HF_HUB_CACHE, and may it be written to?", sealed
    return None, False
