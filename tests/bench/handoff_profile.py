"""The share of the stages' CPU time that goes into copying and serialising, by py-spy's samples of their stacks."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLES_PER_SECOND = 50
#: Frames that copy or (de)serialise: memory, base64, JSON, pickle, Arrow's writer and reader, sockets.
_COPYING = re.compile(
    r"memcpy|memmove|memset|b64|base64|b2a_|a2b_|orjson|pickle|\bdumps\b|\bloads\b|[Ss]erializ|_encode|_decode|"
    r"\bencode\b|\bdecode\b|write_table|read_all|open_stream|FromString|uv__read|uv__write|uv__try_write|"
    r"\brecv\w*|\bsend\w* \(lib|__libc_send|__libc_recv|\bsendmsg|\brecvmsg|writev|_body \(|data_received|\bplace\b"
)


@dataclass(frozen=True)
class Profile:
    """Samples of running threads in all stages, and how many of them copied or serialised."""

    samples: int
    copying: int

    @property
    def share(self) -> float:
        """Share in per cent."""
        return 100 * self.copying / max(1, self.samples)


def profile(pids: Sequence[int], load: Callable[[], object], seconds: float) -> Profile:
    """Sample the processes while ``load`` runs, which has to take longer than ``seconds`` and the profiler's start."""
    spy = str(Path(sys.executable).with_name("py-spy"))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(pid)) for pid in pids]
        spies = [
            subprocess.Popen(
                [spy, "record", "--native", "--format", "raw", "--rate", str(_SAMPLES_PER_SECOND),
                 "--duration", str(int(seconds)), "--pid", str(pid), "--output", str(file)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for pid, file in zip(pids, files, strict=True)
        ]  # fmt: skip
        load()
        for each in spies:
            each.wait(60)
        return _count([file.read_text() for file in files if file.exists()])


def _count(texts: Sequence[str]) -> Profile:
    samples = copying = 0
    for line in "\n".join(texts).splitlines():
        stack, _, count = line.rpartition(" ")
        if count.isdigit():
            samples += int(count)
            copying += int(count) if _COPYING.search(stack) else 0
    return Profile(samples, copying)
