"""Starts the rivals' stages, each a process of its own, and asks the first of them for one transit."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.wrappers_pb2 import BytesValue

from app.arena import remove_orphans
from tests.bench.handoff_tensor import expected
from tests.bench.handoff_wire import GrpcWire, SocketWire
from tests.bench.measure import ROOT

#: Ports of a kind: the stages listen at the first port plus 1 to 4.
PORTS = {"rest_json": 21000, "rest_json_simd": 21010, "rest_raw": 21020, "grpc": 21030, "pickle": 21040,
         "arena_socket": 21050}  # fmt: skip
STAGES = (1, 2, 3, 4)
_START_SECONDS = 120.0


class Rival:
    """The four stages of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._port = PORTS[kind]
        module = "handoff_rest" if kind.startswith("rest") else "handoff_wire"
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", f"tests.bench.{module}", kind, str(stage), str(self._port)],
                cwd=ROOT, stdin=subprocess.PIPE,
            )
            for stage in STAGES
        ]  # fmt: skip
        self._client: Any = None

    @property
    def pids(self) -> list[int]:
        """Process ids of the stages."""
        return [process.pid for process in self._processes]

    def wait(self) -> None:
        """Wait until all stages listen, and open the connection to the first."""
        end = time.monotonic() + _START_SECONDS
        for stage in STAGES:
            while not _listens(self._port + stage):
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.kind}: stage {stage} did not start")
                time.sleep(0.05)
        if self.kind.startswith("rest"):
            self._client = http.client.HTTPConnection("127.0.0.1", self._port + 1)
            self._client.connect()
            self._client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self._client = GrpcWire(self._port) if self.kind == "grpc" else SocketWire(self._port)

    def transit(self, graph: str, mib: int, work: str = "touch") -> tuple[float, dict[str, Any]]:
        """Pass the tensor through the graph once; returns the seconds and the stages' own account."""
        start = time.perf_counter()
        if self.kind.startswith("rest"):
            self._client.request("GET", f"/go/{graph}/{mib}/{work}")
            reply = json.loads(self._client.getresponse().read())
        elif self.kind == "grpc":
            reply = self._client.call(1, f"go_{graph}")(BytesValue(value=str(mib).encode()))
        else:
            reply = self._client.connection(1).ask(("go", graph, mib))
        seconds = time.perf_counter() - start
        if reply["sums"] != [expected(mib)] * 3:
            raise AssertionError(f"{self.kind}: the tensor did not arrive unharmed")
        return seconds, reply

    def close(self) -> None:
        """End the stages."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def rivals(kinds: Sequence[str]) -> Iterator[dict[str, Rival]]:
    """Start the kinds together; end them at the end."""
    started: dict[str, Rival] = {}
    try:
        for kind in kinds:
            started[kind] = Rival(kind)
        for rival in started.values():
            rival.wait()
        yield started
    finally:
        for rival in started.values():
            rival.close()
        remove_orphans()
