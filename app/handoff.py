"""Proof of how a payload arrived: mapped from this node's shared memory, or copied.

The consumer looks where the payload's largest buffer lies. Inside a mapping of the arena (``app/arena.py``) or of Ray's
object store (a file under ``/dev/shm`` or wherever Ray keeps it, named ``plasma``) nothing was copied; anywhere else
the bytes are a copy of the consumer's own. From another node Ray first brings a payload into this node's store, where
it is then mapped. The metrics ``baton_handoff…`` carry the result per hop, with the time since the payload was sent.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pyarrow as pa

from app.arena import PREFIX
from app.messages import Retrieved
from app.metrics import Metrics

HandoffPath = Literal["shared", "inline"]
_MAPS = Path("/proc/self/maps")
_SHARED = ("plasma", PREFIX)


def _largest_buffer(table: pa.Table) -> pa.Buffer | None:
    buffers = [
        buffer
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None
    ]
    return max(buffers, key=lambda buffer: buffer.size, default=None)


class HandoffMeter:
    """Counts payloads per hop and path. One instance per process; the mappings are read anew only when needed."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._ranges: tuple[tuple[int, int], ...] = ()

    def record(self, hop: str, retrieved: Retrieved, sent: float) -> HandoffPath:
        """Count one payload that arrived over ``hop`` (``<producer>-<consumer>``) and return the path it took.

        ``sent`` is the sender's ``time.time()``; between nodes the time of the hop is as right as their clocks.
        """
        buffer = _largest_buffer(retrieved.passages)
        return self.record_bytes(hop, buffer.address if buffer else 0, retrieved.passages.nbytes, sent)

    def record_bytes(self, hop: str, address: int, nbytes: int, sent: float) -> HandoffPath:
        """Count one payload of ``nbytes`` that arrived over ``hop`` and now lies at ``address``."""
        elapsed = max(0.0, time.time() - sent) * 1000
        path: HandoffPath = "shared" if self._is_shared(address) else "inline"
        self._metrics.add("baton_handoffs_total", hop=hop, path=path)
        self._metrics.add("baton_handoff_bytes_total", float(nbytes), hop=hop, path=path)
        self._metrics.add("baton_handoff_milliseconds", elapsed, hop=hop, path=path)
        return path

    def _is_shared(self, address: int) -> bool:
        if not address:
            return False
        if not self._lies_in_shared_memory(address):
            self._ranges = _shared_ranges()
        return self._lies_in_shared_memory(address)

    def _lies_in_shared_memory(self, address: int) -> bool:
        return any(start <= address < end for start, end in self._ranges)


def _shared_ranges() -> tuple[tuple[int, int], ...]:
    ranges = []
    for line in _MAPS.read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and any(name in fields[5] for name in _SHARED):
            start, end = fields[0].split("-")
            ranges.append((int(start, 16), int(end, 16)))
    return tuple(ranges)
