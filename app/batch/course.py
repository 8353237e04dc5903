"""The course of one batch that came in over the API: checked, at work, written out, over."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO

import httpx
import orjson

from app.batch.gateway_way import GatewayAsker
from app.batch.ledger import Ledger, Record
from app.batch.places import Place
from app.batch.progress import count_rows
from app.batch.results import result_line
from app.batch.rows import Rows
from app.batch.run import BatchRun, RowMeter, RunOptions, Stopped
from app.batch.store import CANCEL_MARK, ENDED, Batches, Files, read_json, write_json
from app.config.batches import BatchesConfig
from app.errors import BatonError, ClientError, InvalidRequest

_SAVE_SECONDS = 1.0
_PATIENCE_SECONDS = 300.0
_EXPIRED = {
    "message": "This row was not answered before its batch's completion_window was over: send it in another batch.",
    "type": "timeout_error",
    "param": None,
    "code": "batch_expired",
    "stage": "batch",
}


def progress_of(config: BatchesConfig, owner: str, name: str) -> Ledger:
    """Return the ledger of a batch, not yet locked. Raises NotFound."""
    return Ledger(Batches(config, owner).folder(name) / "progress")


class Course:
    """One batch, whose ledger this process has locked."""

    def __init__(self, config: BatchesConfig, owner: str, name: str, ledger: Ledger, meter: RowMeter) -> None:
        self.owner = owner
        self.name = name
        self.ledger = ledger
        self._config = config
        self._meter = meter
        self._files = Files(config, owner)
        self._folder = Batches(config, owner).folder(name)
        self._state: dict[str, Any] = read_json(self._folder / "batch.json") or {}
        self._total = 0
        self._why = ""

    async def run(self, client: httpx.AsyncClient) -> None:
        """Bring the batch to its end, or as far as it goes: what is raised leaves it open for another try."""
        if self._state["status"] in ENDED:
            return
        await asyncio.to_thread(self.ledger.read)
        try:
            rows = await asyncio.to_thread(self._checked)
            why = await self._asked(rows, GatewayAsker(client, self._config.priority, self.name))
        except ClientError as error:
            self._end("failed", errors={"object": "list", "data": [_told(error)]})
            return
        self._save(status="finalizing", finalizing_at=_now())
        await asyncio.to_thread(self._write_out, rows, why)

    def _checked(self) -> Rows:
        """Return the batch's rows. Raises NotFound and InvalidRequest where there is nothing to begin with."""
        content = Place(str(self._files.content(self._state["input_file_id"])), ".jsonl")
        total = count_rows(content, self._config.max_row_bytes)
        if not 1 <= total <= self._config.max_rows:
            raise InvalidRequest(f"The file holds {total} rows: send 1 to {self._config.max_rows}.", "batch")
        self._total = total
        self._save(status="in_progress", in_progress_at=self._state.get("in_progress_at", _now()))
        return Rows(content, self._config.max_row_bytes, self._state["endpoint"])

    async def _asked(self, rows: Rows, asker: GatewayAsker) -> str:
        """Ask all rows that are not done; returns the state that the batch ends in. Raises Unauthenticated."""
        stop = asyncio.Event()
        watch = asyncio.create_task(self._watch(stop))
        options = RunOptions(self._config.concurrency, _PATIENCE_SECONDS)
        try:
            await BatchRun(self.ledger, options, self._meter).run(rows, asker, stop)
        except Stopped:
            return self._why
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        return "completed"

    async def _watch(self, stop: asyncio.Event) -> None:
        """Tell how far the batch is, and stop it when it is cancelled or its time is over."""
        while True:
            await asyncio.to_thread(self._look)
            if self._why:
                stop.set()
            await asyncio.sleep(_SAVE_SECONDS)

    def _look(self) -> None:
        if (self._folder / CANCEL_MARK).exists():
            self._why = "cancelled"
        elif time.time() > self._state["expires_at"]:
            self._why = "expired"
        self._save()

    def _write_out(self, rows: Rows, why: str) -> None:
        """Write the files of answers and of errors, and the end. Done once more after a crash, it does the same."""
        left: Iterator[Record] = self._left(rows) if why == "expired" else iter(())
        outputs = {
            "output_file_id": self._written("output", self.ledger.records(lambda failed: not failed)),
            "error_file_id": self._written("error", chain(self.ledger.records(lambda failed: failed), left)),
        }
        self._end(why, **{name: file_id for name, file_id in outputs.items() if file_id is not None})

    def _left(self, rows: Rows) -> Iterator[Record]:
        for row in rows:
            if not self.ledger.has(row.number):
                yield Record(row.number, row.custom_id, 0, "", None, _EXPIRED)

    def _written(self, kind: str, records: Iterator[Record]) -> str | None:
        """Write a file under an id that follows from the batch's; returns None where there is nothing to write."""
        first = next(records, None)
        if first is None:
            return None

        def write(sink: BinaryIO) -> None:
            for record in chain((first,), records):
                sink.write(orjson.dumps(result_line(record)) + b"\n")

        # The last digit of a batch's id is chance: of three ids that differ in it alone, two are the outputs'.
        digits = self.name.removeprefix("batch_")
        file_id = f"file-{digits[:-1]}{(int(digits[-1], 16) + (1 if kind == 'output' else 2)) % 16:x}"
        self._files.put(file_id, write, f"{self.name}_{kind}.jsonl", "batch_output")
        return file_id

    def _save(self, **changes: Any) -> None:
        done, failed = self.ledger.done, self.ledger.failed
        counts = {"total": self._total, "completed": done - failed, "failed": failed}
        self._state |= {"request_counts": counts, **changes}
        write_json(self._folder / "batch.json", self._state)

    def _end(self, status: str, **changes: Any) -> None:
        mark = read_json(self._folder / CANCEL_MARK) if status == "cancelled" else None
        self._save(status=status, **{f"{status}_at": _now()}, **(mark or {}), **changes)
        shutil.rmtree(self._folder / "progress", ignore_errors=True)


def _told(error: BatonError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "param": error.param, "line": None}


def _now() -> int:
    return int(time.time())
