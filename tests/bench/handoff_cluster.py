"""The bench's end of :mod:`tests.bench.handoff_ray`: starts one Ray in a process of its own and sends it commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from app.arena import SHARED_MEMORY, remove_orphans
from tests.bench.handoff_tensor import expected
from tests.bench.measure import ROOT

_END_SECONDS = 30


class Cluster:
    """One Ray with the four stages, played by a gateway in a process of its own."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._before = _semaphores()
        command = [sys.executable, "-m", "tests.bench.handoff_ray", mode]
        # As the product starts the gateway: its start-up settings of the collector are part of what is measured.
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(ROOT / "app" / "ops" / "python_start"), str(ROOT)))
        }
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        if self._answer() != {"ready": self._mode}:
            raise RuntimeError("Ray did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(0 if error else _END_SECONDS)
        except subprocess.TimeoutExpired:  # it waits for something that does not come; Ray's processes end with it
            self._process.terminate()
            self._process.wait(_END_SECONDS)
        remove_orphans()
        _remove_semaphores(self._before)

    def start(self, command: str, *arguments: Any) -> None:
        """Send a command whose answer is read later by :meth:`finish`."""
        self._process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        """Return the answer to the command that was sent last."""
        answer = self._answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def ask(self, command: str, *arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.start(command, *arguments)
        return self.finish()

    def transit(self, side: str, graph: str, mib: int, work: str = "touch") -> tuple[float, dict[str, Any]]:
        """Pass the tensor through the graph once; returns the seconds and the stages' own account."""
        answer = self.ask("transit", side, graph, mib, work)
        sums = [reply["sum"] for reply in answer.get("replies", ())]
        if sums and sums != [expected(mib)] * 3:
            raise AssertionError(f"{side}: the tensor did not arrive unharmed")
        return answer["seconds"], answer

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the gateway of the {self._mode} cluster ended")
        return json.loads(line)


def _semaphores() -> set[Path]:
    """Return the semaphores of compiled graphs' channels."""
    return {path for kind in ("hdr", "obj") for path in SHARED_MEMORY.glob(f"sem.{kind}[0-9]*-[0-9]*")}


def _remove_semaphores(before: set[Path]) -> None:
    """Remove what Ray leaves behind: a compiled graph's channels have two each, which nobody unlinks."""
    for path in _semaphores() - before:
        pid = path.name.removeprefix("sem.hdr").removeprefix("sem.obj").split("-")[0]
        if not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)
