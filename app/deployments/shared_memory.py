"""Removes what an engine's processes leave in shared memory.

vLLM keeps ring buffers of 160 to 250 MB in ``/dev/shm`` (named ``psm_…`` by Python's ``multiprocessing``) and, when its
workers are terminated, not every one is unlinked: a replica that is replaced ten times would fill the memory.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108 - the system's shared memory, not a temporary file
_PREFIX = "psm_"


def segments(folder: Path = FOLDER) -> frozenset[str]:
    """Return the names of the segments that exist now."""
    return frozenset(path.name for path in folder.glob(f"{_PREFIX}*"))


def remove_orphans(before: frozenset[str], folder: Path = FOLDER, processes: Path = Path("/proc")) -> list[str]:
    """Unlink segments that are not in ``before`` and that no process maps any more; return their names."""
    candidates = segments(folder) - before
    orphans = sorted(candidates - _mapped(candidates, processes))
    for name in orphans:
        (folder / name).unlink(missing_ok=True)
    return orphans


def _mapped(names: frozenset[str], processes: Path) -> set[str]:
    found: set[str] = set()
    for process in processes.iterdir() if names else ():
        if process.name.isdigit():
            try:
                maps = (process / "maps").read_text(errors="replace")
            except OSError:
                continue
            found |= {name for name in names if name in maps}
    return found
