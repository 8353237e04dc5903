"""The output of a batch: a line or row per row of the input, in its order, failed ones with their error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson

from app.batch.ledger import Record
from app.batch.places import Place

_PARQUET_ROWS = 1024


def result_line(record: Record) -> dict[str, Any]:
    """Return a record as OpenAI's batch files hold it; ``error`` has ``code`` and ``message`` and our other fields."""
    reply = None
    if record.status:
        body = record.body if record.error is None else {"error": dict(record.error)}
        reply = {"status_code": record.status, "request_id": record.request_id, "body": body}
    error = None if record.error is None else dict(record.error)
    return {"id": f"batch_req_{record.row}", "custom_id": record.custom_id, "response": reply, "error": error}


def write_results(place: Place, records: Iterable[Record]) -> int:
    """Write the output whole; returns the number of rows."""
    with place.writing() as sink:
        if not place.is_parquet:
            count = 0
            for record in records:
                sink.write(orjson.dumps(result_line(record)) + b"\n")
                count += 1
            return count
        return _write_parquet(sink, iter(records))


def _write_parquet(sink: Any, records: Iterator[Record]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = ("custom_id", "request_id", "text", "finish_reason", "body", "error_code", "error_message")
    schema = pa.schema([("row", pa.int64()), ("status", pa.int32()), *((name, pa.string()) for name in text)])
    count = 0
    with pq.ParquetWriter(sink, schema) as writer:
        while rows := [_parquet_row(record) for record in islice(records, _PARQUET_ROWS)]:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            count += len(rows)
    return count


def _parquet_row(record: Record) -> dict[str, Any]:
    """Return a record as columns: the first answer's text beside the whole reply as JSON."""
    choice = ((record.body or {}).get("choices") or [{}])[0]
    error = record.error or {}
    return {
        "row": record.row,
        "status": record.status,
        "custom_id": record.custom_id,
        "request_id": record.request_id,
        "text": (choice.get("message") or {}).get("content", choice.get("text")),
        "finish_reason": choice.get("finish_reason"),
        "body": None if record.body is None else orjson.dumps(record.body).decode(),
        "error_code": error.get("code"),
        "error_message": error.get("message"),
    }
