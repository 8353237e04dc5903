"""The course of one batch that came in over the API: checked, at work, written out, over."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
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
from app.batch.store import CANCEL_MARK, ENDED, Batches, Files, output_ids, read_json, write_json
from app.config.batches import BatchesConfig
from app.errors import BatonError, ClientError, InvalidRequest, Unauthenticated

_SAVE_SECONDS = 1.0
_PATIENCE_SECONDS = 300.0
#: How long a key may open nothing before its batch fails: a file of keys that was written wrong is mended by then.
_LOCKED_OUT_SECONDS = 900.0
_LOCKED_OUT = "locked_out.json"
_EXPIRED = {
    "message": "This row was not answered before its batch's completion_window was over: send it in another batch.",
    "type": "timeout_error",
    "param": None,
    "code": "batch_expired",
    "stage": "batch",
}


class Course:
    """One batch. Its ``ledger`` is to be locked by this process before it runs. Raises NotFound.

    ``others_wait`` tells whether another owner's batch could go on in its place.
    """

    def __init__(
        self,
        config: BatchesConfig,
        owner: str,
        name: str,
        meter: RowMeter,
        others_wait: Callable[[], Awaitable[bool]],
    ) -> None:
        self.owner = owner
        self.name = name
        self._config = config
        self._meter = meter
        self._others_wait = others_wait
        self._files = Files(config, owner)
        self._folder = Batches(config, owner).folder(name)
        self.ledger = Ledger(self._folder / "progress")
        self._state: dict[str, Any] = {}
        self._total = 0
        self._why = ""

    async def run(self, client: httpx.AsyncClient) -> None:
        """Bring the batch to its end, or as far as it goes: what is raised leaves it open for another try."""
        if not await asyncio.to_thread(self._is_open):
            return
        try:
            rows = await asyncio.to_thread(self._checked)
            why = await self._asked(rows, GatewayAsker(client, self._config.priority, self.name))
        except ClientError as error:
            await asyncio.to_thread(self._fail, error)
            return
        left = self._left(rows) if why == "expired" else iter(())
        await asyncio.to_thread(self._write_out, why, left)

    def _fail(self, error: ClientError) -> None:
        """Write out what is done and end with the error; raises it where it may pass: a key that opens nothing."""
        if isinstance(error, Unauthenticated) and not self._is_locked_out():
            raise error
        self._write_out("failed", iter(()), errors={"object": "list", "data": [_told(error)]})

    def _is_locked_out(self) -> bool:
        """Tell whether the key has opened nothing for so long that it is not a mistake that somebody mends."""
        path = self._folder / _LOCKED_OUT
        mark = read_json(path)
        if mark is None or mark["done"] != self.ledger.done:
            mark = {"since": time.time(), "done": self.ledger.done}
            write_json(path, mark)
        return bool(time.time() - mark["since"] >= _LOCKED_OUT_SECONDS)

    def _is_open(self) -> bool:
        """Read how far the batch is; tells whether anything is left to do."""
        self._state = read_json(self._folder / "batch.json") or {}
        if self._state.get("status", "completed") in ENDED:
            return False
        self._total = self._state["request_counts"]["total"]
        self.ledger.read()
        return True

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
        """Ask all rows that are not done; returns the state that the batch ends in.

        Raises Unauthenticated and GaveWay.
        """
        await asyncio.to_thread(self._look)
        if self._why:
            return self._ending()
        stop, over = asyncio.Event(), asyncio.Event()
        watch = asyncio.create_task(self._watch(stop, over))
        options = RunOptions(self._config.concurrency, _PATIENCE_SECONDS)
        try:
            run = BatchRun(self.ledger, options, self._meter, others_wait=self._others_wait)
            await run.run(rows, asker, stop)
        except Stopped:
            return self._ending()
        finally:
            over.set()
            await watch  # not cancelled: its thread would write the state of a moment ago over the next one
        return "completed"

    def _ending(self) -> str:
        """Return the state of a batch that was stopped. Time that is over after the last answer takes nothing away."""
        return "completed" if self._why == "expired" and self.ledger.done >= self._total else self._why

    async def _watch(self, stop: asyncio.Event, over: asyncio.Event) -> None:
        """Tell how far the batch is, and stop it when it is cancelled or its time is over."""
        while not over.is_set():
            with contextlib.suppress(OSError):  # it may be better in a second
                await asyncio.to_thread(self._look)
            if self._why:
                stop.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), _SAVE_SECONDS)

    def _look(self) -> None:
        if (self._folder / CANCEL_MARK).exists():
            self._why = "cancelled"
        elif time.time() > self._state["expires_at"]:
            self._why = "expired"
        self._save()

    def _write_out(self, why: str, left: Iterator[Record], **changes: Any) -> None:
        """Write the files of answers and of errors, and the end. Done once more after a crash, it does the same.

        ``left`` are records of rows that nobody asked.
        """
        self._save(status="finalizing", finalizing_at=_now())
        outputs = {
            "output_file_id": self._written("output", self.ledger.records(lambda failed: not failed)),
            "error_file_id": self._written("error", chain(self.ledger.records(lambda failed: failed), left)),
        }
        self._end(why, **changes, **{name: file_id for name, file_id in outputs.items() if file_id is not None})

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

        file_id = output_ids(self.name)[kind]
        expires_after = (self._state.get("output_expires_after") or {}).get("seconds")
        self._files.put(file_id, write, f"{self.name}_{kind}.jsonl", "batch_output", expires_after)
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
