"""The rows of a batch: read from JSONL or Parquet, each a request or the error that keeps it from being one.

A row is what ``/v1/chat/completions`` takes as its body, with ``prompt`` for a single question and an optional
``custom_id``; or a line of OpenAI's batch files, ``{"custom_id", "method", "url", "body"}``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, BinaryIO

import orjson

from app.batch.places import Place
from app.blank import is_blank
from app.byte_order import without_mark
from app.errors import BatonError, InvalidRequest, bounded

#: What a row may ask for: the routes that OpenAI's batches take.
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
CHAT = ENDPOINTS[0]
#: Columns of a Parquet file that hold JSON as text where they are texts.
_JSON_COLUMNS = frozenset({"messages", "body", "rag", "tools", "response_format", "stop"})
_LINE_FIELDS = frozenset({"custom_id", "method", "url", "body"})
_LONGEST_ID = 512
_PARQUET_ROWS = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``number`` counts from 0 and is its identity; ``error`` is set where it cannot be asked."""

    number: int
    custom_id: str
    url: str = CHAT
    body: Mapping[str, Any] | None = None
    error: BatonError | None = None


class Rows:
    """Reads rows. ``max_bytes`` bounds a line; ``endpoint`` is the only one allowed where it is set.

    A row without a ``custom_id``, or whose own cannot be read, is named ``row-<number>``, or ``row-<number>-2`` and so
    on where another row has that name: always the same one, so that a run which goes on knows it again.
    """

    def __init__(self, place: Place, max_bytes: int, endpoint: str = "") -> None:
        self._place = place
        self._max_bytes = max_bytes
        self._endpoint = endpoint
        self._likes: set[str] | None = None

    def __iter__(self) -> Iterator[Row]:
        """Yield every row in order; a repeated ``custom_id`` is an error of the later row."""
        seen: set[str] = set()
        for name, row in self._parquet() if self._place.is_parquet else self._jsonl():
            if row.error is None and row.custom_id in seen:
                told = f"{name}: the custom_id {bounded(row.custom_id)} stands twice: give each its own."
                row = Row(row.number, row.custom_id, error=InvalidRequest(told, "batch", "custom_id"))
            elif row.error is not None:
                fault = InvalidRequest(f"{name} {row.error.message}.", "batch", row.error.param)
                row = Row(row.number, row.custom_id, error=fault)
            seen.add(row.custom_id)
            yield row

    def _own_id(self, number: int) -> str:
        """Return the name of a row that brings none."""
        if self._likes is None:
            self._likes = set(_row_likes(self._place, self._max_bytes))
        names = chain((f"row-{number}",), (f"row-{number}-{again}" for again in count(2)))
        return next(name for name in names if name not in self._likes)

    def _bad(self, number: int, fault: str, param: str | None = None) -> Row:
        return Row(number, self._own_id(number), error=InvalidRequest(fault, "batch", param))

    def _jsonl(self) -> Iterator[tuple[str, Row]]:
        """Yield each row behind its name."""
        with self._place.open() as source:
            for number, (at, line) in enumerate(lines(source, self._max_bytes)):
                yield f"Line {at}", self._line(number, line)

    def _line(self, number: int, line: bytes | None) -> Row:
        if line is None:
            return self._bad(number, f"is longer than {self._max_bytes} bytes: shorten it")
        try:
            raw = orjson.loads(without_mark(line))
        except orjson.JSONDecodeError as error:
            return self._bad(number, f"is not valid UTF-8 JSON (column {error.colno})")
        return self._row(number, raw)

    def _parquet(self) -> Iterator[tuple[str, Row]]:
        number = 0
        with self._place.open_parquet() as found:
            for batch in found.iter_batches(_PARQUET_ROWS):
                for raw in _read_batch(batch):
                    yield f"Row {number + 1}", self._parquet_row(number, raw)
                    number += 1

    def _parquet_row(self, number: int, raw: dict[str, Any] | None) -> Row:
        if raw is None:
            return self._bad(number, "holds text that is not UTF-8")
        cells = {name: value for name, value in raw.items() if value is not None}
        try:
            for name in _JSON_COLUMNS & cells.keys():
                cells[name] = _json_cell(name, cells[name])
            size = len(orjson.dumps(cells))
        except (orjson.JSONDecodeError, ValueError):
            return self._bad(number, "has a column of JSON that is not valid, or a value that JSON has no word for")
        except TypeError:
            return self._bad(number, "holds a value that JSON has no word for: keep texts, numbers, lists and structs")
        if size > self._max_bytes:
            return self._bad(number, f"is longer than {self._max_bytes} bytes: shorten it")
        return self._row(number, cells)

    def _row(self, number: int, raw: Any) -> Row:
        if not isinstance(raw, dict):
            return self._bad(number, "must be a JSON object")
        custom_id = raw.get("custom_id")
        if custom_id is None:
            custom_id = self._own_id(number)
        if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= _LONGEST_ID:
            return self._bad(number, f"has a custom_id that is no text of 1 to {_LONGEST_ID} characters", "custom_id")
        try:
            url, body = _line_parts(raw) if raw.keys() & {"body", "url", "method"} else (CHAT, _plain_body(raw))
            self._check(url, body)
        except InvalidRequest as error:
            return Row(number, custom_id, error=error)
        return Row(number, custom_id, url, body)

    def _check(self, url: str, body: Mapping[str, Any]) -> None:
        if self._endpoint and url != self._endpoint:
            raise InvalidRequest(f"asks for {bounded(url)}, and this batch is for {self._endpoint}", param="url")
        if body.get("stream"):
            raise InvalidRequest("asks for a stream: leave stream out", param="stream")


def lines(source: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line that is not blank behind its number, which blank ones count for, without the blanks around it.

    None stands for one over ``max_bytes``, which is never held in memory whole.
    """
    number = 0
    while line := source.readline(max_bytes + 2):
        number += 1
        if len(line.rstrip(b"\r\n")) > max_bytes:
            while line and not line.endswith(b"\n"):
                line = source.readline(1 << 16)
            yield number, None
        elif line.strip():
            yield number, line.strip()


def _row_likes(place: Place, max_bytes: int) -> Iterator[str]:
    """Yield the given ids that look like those that rows without one get."""
    given = _parquet_ids(place) if place.is_parquet else _jsonl_ids(place, max_bytes)
    return (name for name in given if isinstance(name, str) and name.startswith("row-"))


def _jsonl_ids(place: Place, max_bytes: int) -> Iterator[Any]:
    with place.open() as source:
        for _, line in lines(source, max_bytes):
            # What is not there in letters may be there in escapes; all other lines need no reading.
            if line is None or (b"row-" not in line and b"\\u" not in line):
                continue
            with contextlib.suppress(orjson.JSONDecodeError):
                raw = orjson.loads(without_mark(line))
                yield raw.get("custom_id") if isinstance(raw, dict) else None


def _parquet_ids(place: Place) -> Iterator[Any]:
    with place.open_parquet() as found:
        columns = [name for name in ("custom_id",) if name in found.schema_arrow.names]
        for batch in found.iter_batches(_PARQUET_ROWS, columns=columns) if columns else ():
            for raw in _read_batch(batch):
                yield raw and raw["custom_id"]


def _read_batch(batch: Any) -> list[dict[str, Any] | None]:
    """Return the rows of an Arrow batch; None for one that holds text that is none, which Parquet does not check."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return [None]
        return [row for place in range(batch.num_rows) for row in _read_batch(batch.slice(place, 1))]


def _line_parts(raw: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    unknown = sorted(raw.keys() - _LINE_FIELDS)
    if unknown:
        raise InvalidRequest(f"has the unknown field {bounded(unknown[0])} beside body", param=unknown[0])
    if raw.get("method", "POST") != "POST":
        raise InvalidRequest("has another method than POST", param="method")
    if raw.get("url") not in ENDPOINTS:
        raise InvalidRequest(f"has a url other than {', '.join(ENDPOINTS)}", param="url")
    body = raw.get("body")
    if not isinstance(body, dict):
        raise InvalidRequest("has no JSON object in body", param="body")
    return raw["url"], body


def _plain_body(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    body = {name: value for name, value in raw.items() if name != "custom_id"}
    if ("prompt" in body) == ("messages" in body):
        raise InvalidRequest("needs either messages or prompt", param="messages")
    if "prompt" in body:
        prompt = body.pop("prompt")
        if not isinstance(prompt, str) or is_blank(prompt):
            raise InvalidRequest("has a prompt that is no text, or a blank one", param="prompt")
        body["messages"] = [{"role": "user", "content": prompt}]
    return body


def _json_cell(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return _without_nulls(value)
    return _stop_cell(value) if name == "stop" else orjson.loads(value)


def _stop_cell(text: str) -> Any:
    """Return the texts of a JSON list of them; any other text ends the answer itself, ``[INST]`` too."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    is_list = isinstance(found, list) and found and all(isinstance(item, str) for item in found)
    return found if is_list else text


def _without_nulls(value: Any) -> Any:
    """Drop the empty fields that a column of structs gives to each of its rows."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value
