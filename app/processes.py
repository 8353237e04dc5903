"""What the kernel tells of a process, where a library would be one more to ship."""

from __future__ import annotations

from pathlib import Path

PROCESSES = Path("/proc")


def stat_fields(process: Path) -> list[str]:
    """Return the fields of a process' ``stat`` from its state on (proc(5), field 3). Raises OSError where it is gone.

    ``process`` is its folder in :data:`PROCESSES`.
    """
    # The second field is a name in parentheses, which may hold anything.
    return (process / "stat").read_text().rpartition(")")[2].split()
