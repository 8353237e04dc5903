"""What ``make run`` checks before it starts anything; each fault is one sentence that says what to change."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.config.embedder import looks_like_a_path
from app.config.local import ROOT, LocalConfig, MachineConfig
from app.errors import ConfigError, bounded

_GIB = 1024**3
_MEMINFO = Path("/proc/meminfo")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the place where Ray keeps its object store, not a file of ours


def check(machine: MachineConfig, data: Path) -> None:
    """Raise :class:`ConfigError` at the first thing that would stop the pipeline from starting on this machine."""
    for name, port in check_ports(machine).items():
        check_port(machine.host, port, name)
    check_memory(available_memory(_MEMINFO), machine.min_memory_bytes)
    check_disk(data, machine.min_disk_bytes)
    check_shared_memory(machine.object_store_bytes)


@contextmanager
def held(data: Path) -> Iterator[None]:
    """Keep other runs out of a data folder. Raises :class:`ConfigError` where one works in it."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "run.lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"{data} cannot be written to ({error.strerror}): make it writable, or pass another folder with --data."
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"Another run works in {data}: stop it, or pass another folder with --data (and other ports)."
            ) from None
        except OSError:
            pass  # the storage knows no locks
        yield


def check_ports(machine: MachineConfig) -> dict[str, int]:
    """Return the ports by name; refuse one port for two things."""
    named = ("port", "grpc_port", "metrics_port", "dashboard_port")
    ports = {name: port for name in named if (port := getattr(machine, name)) is not None}
    if len(set(ports.values())) < len(ports):
        told = ", ".join(f"--{name.replace('_', '-')} {port}" for name, port in ports.items())
        raise ConfigError(f"Each of the ports has to be another one, and they are {told}: change one.")
    return ports


def check_collections(collections: Mapping[str, str]) -> None:
    """Refuse a collection whose folder or file is not there: indexing begins a minute after the start."""
    for name, path in collections.items():
        if not (ROOT / path).exists():
            raise ConfigError(f"collections.{name} names {str(ROOT / path)!r}, which does not exist: correct the path.")


def check_files(config: LocalConfig, prepared: Collection[Path]) -> None:
    """Refuse a folder or file that is not there: what needs it starts a minute later. ``prepared`` are made by then."""
    made = {os.path.normpath(path) for path in prepared}
    for key, path in _paths(config):
        if os.path.normpath(path) not in made and not (ROOT / Path(path).expanduser()).exists():
            raise ConfigError(f"{key} names {bounded(path, 300)}, which does not exist: correct the path.")


def check_prepared(config: LocalConfig, prepared: Collection[Path], data: Path) -> None:
    """Refuse a ``data`` folder without the models that a start prepares there: nothing else prepares them."""
    made = {os.path.normpath(path) for path in prepared}
    for key, path in _paths(config):
        if os.path.normpath(path) in made and not Path(path).is_dir():
            raise ConfigError(
                f"{key} names {bounded(path, 300)}, which does not exist: {bounded(str(data), 300)} is not the folder "
                "that `make run` prepared its models in; pass that one with --data."
            )


def _paths(config: LocalConfig) -> Iterator[tuple[str, str]]:
    """Yield the keys that name folders and files, with what they name; ids of models are left out."""
    for place, model in enumerate(config.models):
        loading = model.engine.get("model_loading_config")
        loading = loading if isinstance(loading, dict) else {}
        for key in ("model_source", "tokenizer_source"):
            yield from _path(f"models[{place}].engine.model_loading_config.{key}", loading.get(key))
    for name, window in config.pipeline.models.items():
        yield from _path(f"pipeline.models.{name}.tokenizer", window.tokenizer)
        if window.chat_template is not None:
            yield f"pipeline.models.{name}.chatTemplate", window.chat_template
    if config.pipeline.embedder.kind != "fake":
        yield from _path("pipeline.embedder.source", config.pipeline.embedder.source)
    yield from _paths_of_applications(config)
    if config.pipeline.store.secret_file is not None:
        yield "pipeline.store.secretFile", config.pipeline.store.secret_file
    for name, policy in config.settings.guardrail.policies.items():
        for place, file in enumerate(policy.terms_files):
            yield f"settings.guardrail.policies.{name}.termsFiles[{place}].path", file.path
        if policy.classifier is not None:
            yield from _path(f"settings.guardrail.policies.{name}.classifier.path", policy.classifier.path)


def _paths_of_applications(config: LocalConfig) -> Iterator[tuple[str, str]]:
    for name, application in config.applications.enabled().items():
        for step in type(application.stages).model_fields:
            shape = getattr(application.stages, step)
            where = f"applications.{name}.stages.{step}"
            yield from _path(f"{where}.tokenizer", getattr(shape, "tokenizer", None))
            if (backend := getattr(shape, "backend", None)) is not None:
                yield from _path(f"{where}.backend.source", backend.source)


def _path(key: str, named: Any) -> Iterator[tuple[str, str]]:
    if isinstance(named, str) and "://" not in named and looks_like_a_path(named):  # s3://… is the engine's to find
        yield key, named


def check_port(host: str, port: int, name: str) -> None:
    """Refuse a port that somebody listens on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(
                    f"Port {port} on {host} cannot be used ({error.strerror}): is machine.host an address of this "
                    f"machine, and the port free to take without privileges?"
                ) from None
            raise ConfigError(
                f"Port {port} on {host} cannot be used ({error.strerror}): stop the program that listens there "
                f"(`ss -ltnp 'sport = :{port}'` shows it) or pass another one with --{name.replace('_', '-')}."
            ) from None


def available_memory(meminfo: Path) -> int:
    """Return the bytes of memory that can be had without swapping, and within the limit of a container's group."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit = Path("/sys/fs/cgroup/memory.max")
    used = Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        available = min(available, int(text) - int(used.read_text()))
    return available


def check_memory(available: int, needed: int) -> None:
    """Refuse a machine with too little memory."""
    if available < needed:
        raise ConfigError(
            f"Baton needs {needed / _GIB:.1f} GiB of available memory and this machine has {available / _GIB:.1f} GiB: "
            "close other programs or use a larger machine."
        )


def check_disk(folder: Path, needed: int) -> None:
    """Refuse a disk with too little room for models and index."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise ConfigError(
            f"Baton needs {needed / _GIB:.1f} GiB of free disk space under {folder} and there are "
            f"{free / _GIB:.1f} GiB: free some, or pass another folder with --data."
        )


def check_shared_memory(needed: int) -> None:
    """Refuse a /dev/shm smaller than the object store: Ray would fall back to the disk without a word."""
    if not _SHARED_MEMORY.exists():
        raise ConfigError(f"This machine has no {_SHARED_MEMORY}, which the hand-off between stages needs.")
    free = shutil.disk_usage(_SHARED_MEMORY).free
    if free < needed:
        raise ConfigError(
            f"{_SHARED_MEMORY} has {free / _GIB:.2f} GiB free and the hand-off needs {needed / _GIB:.2f} GiB: "
            "enlarge it (for a container: --shm-size) or lower machine.objectStoreBytes."
        )
