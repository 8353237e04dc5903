"""The share of the stages' CPU time that goes into copying and serialising, by py-spy's samples of their stacks."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SAMPLES_PER_SECOND = 150
#: Frames that copy or (de)serialise: memory, base64, JSON, pickle, Arrow's writer and reader.
_COPYING = re.compile(
    r"memcpy|memmove|memset|b64|base64|b2a_|a2b_|orjson|pickle|\bdumps\b|\bloads\b|[Ss]erializ|"
    r"\bencode\b|\bdecode\b|write_table|read_all|open_stream|FromString|_body \(|data_received|"
    r"\._place\b|Arena\.place\b"
)
#: Innermost frames that move bytes between processes.
_MOVING = re.compile(r"^(read|readv|recv|recvmsg|recvfrom|write|writev|send|sendmsg|sendto)\b")
#: A thread that waits is sampled when it could run but found no core free: that is no CPU time.
_WAITING = re.compile(
    r"epoll_p?wait|pthread_cond_|PyThread_acquire_lock_timed|\bpoll\b|\bselect\b|futex|\bsem_|nanosleep"
)
_INNERMOST = 4
#: The C library's copy routines have no name in a stripped library; they lie side by side.
_ROUTINE_BYTES = 0x900
_ADDRESS = re.compile(r"^0x([0-9a-f]+) \(libc")


@dataclass(frozen=True)
class Profile:
    """Samples of running threads in all stages, and how many of them copied or serialised."""

    samples: int
    copying: int

    @property
    def share(self) -> float:
        """Share in per cent."""
        return 100 * self.copying / max(1, self.samples)

    def __str__(self) -> str:
        share = self.share / 100
        margin = 196 * math.sqrt(share * (1 - share) / max(1, self.samples))
        return f"{self.share:.3g} ± {margin:.1g} %"


def profile(pids: Sequence[int], load: Callable[[], object], seconds: float) -> Profile:
    """Sample the processes while ``load`` runs, which has to take longer than ``seconds`` and the profiler's start."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(pid)) for pid in pids]
        spies = [_spy(pid, seconds, file) for pid, file in zip(pids, files, strict=True)]
        bases = [_library(pid) for pid in pids]
        load()
        for each in spies:
            each.wait(60)
        counts = [_count(file.read_text(), base) for file, base in zip(files, bases, strict=True) if file.exists()]
    return Profile(sum(samples for samples, _ in counts), sum(copying for _, copying in counts))


def _spy(pid: int, seconds: float, file: Path) -> subprocess.Popen[bytes]:
    command = [
        str(Path(sys.executable).with_name("py-spy")), "record", "--native", "--format", "raw",
        "--rate", str(_SAMPLES_PER_SECOND), "--duration", str(int(seconds)), "--pid", str(pid), "--output", str(file),
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _library(pid: int | str) -> int:
    """Return where the process has the C library."""
    lines = Path("/proc", str(pid), "maps").read_text().splitlines()
    return min(int(line.split("-")[0], 16) for line in lines if "libc.so" in line)


def _routines() -> list[int]:
    """Return where the copy routines that this processor uses lie in the C library."""
    library, base = ctypes.CDLL(None), _library("self")
    routines: list[Any] = [library.memcpy, library.memmove, library.memset]
    return [(ctypes.cast(each, ctypes.c_void_p).value or 0) - base for each in routines]


def _count(text: str, base: int) -> tuple[int, int]:
    """Return the samples of threads that ran, and those among them that copied or serialised."""
    samples = copying = 0
    routines = _routines()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        innermost = ";".join(stack.split(";")[-_INNERMOST:])
        if count.isdigit() and not _WAITING.search(innermost):
            samples += int(count)
            copying += int(count) if _copies(stack, base, routines) else 0
    return samples, copying


def _copies(stack: str, base: int, routines: Sequence[int]) -> bool:
    leaf = stack.rpartition(";")[2]
    if _COPYING.search(stack) or _MOVING.match(leaf):
        return True
    found = _ADDRESS.match(leaf)
    return found is not None and any(0 <= int(found[1], 16) - base - each < _ROUTINE_BYTES for each in routines)
