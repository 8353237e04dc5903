"""``python -m app.ops.models pull|verify|list``: bring models here, check them, tell which are there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.errors import ConfigError


def add_commands(commands: Any) -> None:
    """Add the commands to those of ``app.ops.models``; each parser's ``run`` returns the exit code."""
    pulling = commands.add_parser("pull", help="fetch models: again, it goes on where it was broken off")
    pulling.add_argument("sources", nargs="*", metavar="SOURCE", help="owner/name[@revision], a URL or a folder")
    pulling.add_argument("--out", type=Path, help="folder for the files of a URL or another folder")
    pulling.add_argument("--verify", action="store_true", help="read everything from disk again and check it")
    pulling.set_defaults(run=_pull)
    verifying = commands.add_parser("verify", help="check files against the checksums noted when they came")
    verifying.add_argument("sources", nargs="+", metavar="SOURCE", help="owner/name[@revision], or a folder")
    verifying.set_defaults(run=_verify)
    listing = commands.add_parser("list", help="tell which models are there")
    listing.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="look here and in its folders as well")
    listing.set_defaults(run=_list)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _pull(chosen: argparse.Namespace) -> int:
    from app.delivery.pull import pull

    if chosen.out is not None and len(chosen.sources) > 1:
        raise ConfigError("--out takes the files of one model: pull them one by one.", "models")
    for source in chosen.sources:
        folder = pull(source, chosen.out, _say)
        _say(f"{source} lies in {folder}")
        if chosen.verify and not _is_sound(source, folder):
            return 1
    return 0


def _verify(chosen: argparse.Namespace) -> int:
    from app.delivery.pull import find

    sound = [_is_sound(source, find(source)) for source in chosen.sources]
    return 0 if all(sound) else 1


def _is_sound(source: str, folder: Path) -> bool:
    from app.delivery.manifest import read_manifest, verify
    from app.delivery.progress import Progress

    manifest = read_manifest(folder)
    progress = Progress(f"verifying {source}", manifest.total_bytes if manifest else 0, _say)
    faults = verify(folder, progress.add)
    for fault in faults:
        sys.stderr.write(f"{source}: {fault}\n")
    if faults:
        sys.stderr.write(f"{source}: remove {folder} and pull again.\n")
    else:
        _say(f"{source}: {len(manifest.files) if manifest else 0} files are as they came")
    return not faults


def _list(chosen: argparse.Namespace) -> int:
    rows = [*_in_cache(), *(row for folder in chosen.folders for row in _in_folder(folder))]
    for name, size, revision, state in rows:
        _say(f"{name:<50} {size / 1e6:>10.1f} MB  {revision[:12]:<12}  {state}")
    if not rows:
        _say("no models")
    return 0


def _in_cache() -> Iterator[tuple[str, int, str, str]]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repository in sorted(repositories, key=lambda each: each.repo_id):
        for revision in repository.revisions:
            if repository.repo_type == "model":
                state = _state(revision.snapshot_path)
                yield repository.repo_id, revision.size_on_disk, revision.commit_hash, state


def _in_folder(folder: Path) -> Iterator[tuple[str, int, str, str]]:
    from app.delivery.manifest import MANIFEST, read_manifest

    for path in sorted(folder.rglob(MANIFEST)):
        try:
            manifest = read_manifest(path.parent)
        except ConfigError as error:
            yield str(path.parent), 0, "", str(error)
            continue
        if manifest is not None:
            yield str(path.parent), manifest.total_bytes, manifest.revision, _state(path.parent)


def _state(folder: Path) -> str:
    from app.delivery.manifest import read_manifest

    try:
        manifest = read_manifest(folder)
    except ConfigError as error:
        return str(error)
    if manifest is None:
        return "without checksums: pull writes them"
    return "whole" if manifest.fits(folder) else "files are missing: pull again"
