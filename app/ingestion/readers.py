"""Readers: files in, checked documents out; what cannot be read is reported with file and line, never lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from app.byte_order import without_mark
from app.errors import InvalidRequest
from app.ingestion.documents import MAX_TEXT_BYTES, Document, parse_document

_MAX_LINE_BYTES = 4 * MAX_TEXT_BYTES
_PARQUET_ROWS = 256
# So that few rows are unpacked before the size of a body is looked at: one long text may stand for many rows.
_PARQUET_BODY_ROWS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """One row or file that gave a document. ``line`` counts from 1; 0 stands for the whole file."""

    document: Document
    file: str
    line: int

    @property
    def place(self) -> str:
        """Where it was read, for a sentence."""
        return _place(self.file, self.line)


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row or file that gave no document. ``line`` counts from 1; 0 stands for the whole file."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{_place(self.file, self.line)}: {self.reason}"


Read = Iterator[Row | BadRow]


def _place(file: str, line: int) -> str:
    return f"{file}:{line}" if line else file


def read_rows(paths: Sequence[Path]) -> Read:
    """Read files and folders in the order given; of a folder every readable file below it, by path, hidden ones not.

    Ids and sources of Markdown and text files are their paths below the given folder, or the file's name. A path that
    gives nothing at all is told like a file that cannot be read: it is the wrong one, or was not written yet.
    """
    for path in paths:
        found = False
        for row in _read_folder(path) if path.is_dir() else _read_file(path, path.name):
            found = True
            yield row
        if not found:
            yield BadRow(str(path), 0, _emptiness(path))


def _emptiness(path: Path) -> str:
    if path.is_dir() and next(_walk(path), None) is None:
        return f"holds no file of a known kind ({_known_kinds()})"
    return "holds no document"


def count_documents(paths: Sequence[Path]) -> int:
    """Return how many rows :func:`read_rows` will give, as far as that can be told without parsing them."""
    files = [file for path in paths for file in (_walk(path) if path.is_dir() else [path])]
    return sum(_count(file) for file in files)


def _known_kinds() -> str:
    """Return the kinds of files that can be read, for a sentence."""
    return ", ".join(sorted(_READERS))


def _count(path: Path) -> int:
    kind = path.suffix.lower()
    if not path.is_file():
        return 1
    try:
        if kind in (".jsonl", ".ndjson"):
            with path.open("rb") as file:
                return sum(1 for line in _lines(file) if line is None or line.strip())
        if kind == ".parquet":
            from pyarrow import parquet

            return int(parquet.read_metadata(path).num_rows)
    except (OSError, ValueError):
        # Told as a bad row when it is read.
        return 1
    return 1


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.lower() in _READERS and path.is_file() and not hidden:
            yield path


def _read_folder(folder: Path) -> Read:
    for path in _walk(folder):
        yield from _read_file(path, path.relative_to(folder).as_posix())


def _read_file(path: Path, name: str) -> Read:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        yield BadRow(name, 0, f"is not a file of a known kind ({_known_kinds()})")
        return
    if path.exists() and not path.is_file():
        yield BadRow(name, 0, "is no regular file: write what it gives into one first")
        return
    try:
        yield from reader(path, name)
    except OSError as error:
        yield BadRow(name, 0, f"cannot be read: {error.strerror or type(error).__name__}")


def _checked(raw: Mapping[str, Any], name: str, line: int) -> Row | BadRow:
    try:
        return Row(parse_document(raw, "row"), name, line)
    except InvalidRequest as error:
        return BadRow(name, line, error.message.removesuffix("."))


# --- JSONL ----------------------------------------------------------------------------------------------------------


def _read_jsonl(path: Path, name: str) -> Read:
    with path.open("rb") as file:
        for number, line in enumerate(_lines(file), start=1):
            if line is None:
                yield BadRow(name, number, f"is longer than {_MAX_LINE_BYTES // 2**20} MiB")
            elif line.strip():
                yield _json_row(line, name, number)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Return the lines; None for one that is too long to hold."""
    while line := file.readline(_MAX_LINE_BYTES):
        if len(line) == _MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(_MAX_LINE_BYTES)
            yield None
        else:
            yield without_mark(line)


def _json_row(line: bytes, name: str, number: int) -> Row | BadRow:
    try:
        raw = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        told = "holds a number that is too large" if "infinity" in error.msg else f"is not JSON: {error.msg}"
        return BadRow(name, number, told)
    if not isinstance(raw, dict):
        return BadRow(name, number, "is not a JSON object")
    return _checked({"source": name} | raw, name, number)


# --- Parquet --------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, name: str) -> Read:
    import pyarrow as pa

    try:
        yield from _parquet_rows(path, name, _PARQUET_ROWS, None)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        yield _unreadable(name, error)


def read_parquet_body(raw: bytes, source: str, max_bytes: int) -> Read:
    """Read the rows of a Parquet file held in memory as those of a file on disk; ``source`` is for rows without one.

    Raises InvalidRequest when the rows unpack to more than ``max_bytes``.
    """
    import pyarrow as pa

    try:
        yield from _parquet_rows(BytesIO(raw), source, _PARQUET_BODY_ROWS, max_bytes)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        yield _unreadable(source, error)


def _unreadable(name: str, error: Exception) -> BadRow:
    return BadRow(name, 0, f"is not a readable Parquet file ({type(error).__name__})")


def _parquet_rows(opened: Path | BinaryIO, name: str, batch_rows: int, max_bytes: int | None) -> Read:
    from pyarrow import parquet

    with parquet.ParquetFile(opened) as file:
        columns = _flat_columns(file.schema_arrow)
        if fault := _column_fault(file.schema_arrow.names, columns):
            yield BadRow(name, 0, fault)
            return
        groups = (file.metadata.row_group(index) for index in range(file.num_row_groups))
        _check_size(sum(group.total_byte_size for group in groups), max_bytes)
        number = unpacked = 0
        for batch in file.iter_batches(batch_rows, columns=columns):
            unpacked += batch.nbytes
            _check_size(unpacked, max_bytes)
            for row in batch.to_pylist():
                number += 1
                yield _checked({"source": name} | _plain_row(row), name, number)


def _flat_columns(schema: Any) -> list[str]:
    """Return the columns to read. Lists give no metadata, and a small file can hold very long ones."""
    import pyarrow as pa

    def flat(kind: Any) -> bool:
        return not pa.types.is_nested(kind)

    def facts(field: Any) -> bool:
        return bool(
            field.name == "metadata" and pa.types.is_struct(field.type) and all(flat(f.type) for f in field.type)
        )

    return [field.name for field in schema if flat(field.type) or facts(field)]


def _column_fault(there: Sequence[str], read: Sequence[str]) -> str | None:
    if "text" not in read:
        return "has no column of texts named 'text'"
    nested = [name for name in ("id", "title", "source", "metadata") if name in there and name not in read]
    return f"has a column '{nested[0]}' of lists, maps or the like, which no document holds" if nested else None


def _check_size(unpacked: int, max_bytes: int | None) -> None:
    if max_bytes is not None and unpacked > max_bytes:
        raise InvalidRequest(
            f"The Parquet file unpacks to more than {max_bytes} bytes: send its rows in parts.", param="documents"
        )


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: _plain(value) for key, value in row.items()}
    return {key: value for key, value in plain.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return what JSON would hold: dates as ISO text, decimals as numbers; not-a-number stands for missing."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


# --- Markdown and text ----------------------------------------------------------------------------------------------


def _read_text(path: Path, name: str) -> Read:
    text = _whole(path, name)
    yield text if isinstance(text, BadRow) else _checked({"id": name, "source": name, "text": text}, name, 0)


def _read_markdown(path: Path, name: str) -> Read:
    text = _whole(path, name)
    if isinstance(text, BadRow):
        yield text
        return
    front, body = split_front_matter(text)
    yield _checked({"id": name, "source": name, **front, "text": body}, name, 0)


def _whole(path: Path, name: str) -> str | BadRow:
    if path.stat().st_size > MAX_TEXT_BYTES:
        return BadRow(name, 0, f"is larger than {MAX_TEXT_BYTES // 2**20} MiB: split it")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return BadRow(name, 0, f"is not UTF-8 (byte {error.start})")


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the ``key: value`` lines between two ``---`` at the top of a Markdown file, and the text below them.

    ``title``, ``source`` and ``id`` are the document's; other keys become metadata. ``true``, ``false`` and numbers
    are typed, quotes keep them text. Text without a closing ``---`` has no front matter.
    """
    lines = text.split("\n")
    if lines[0].strip() != "---":
        return {}, text
    for index, line in enumerate(lines[1:], start=1):
        if line.strip() == "---":
            return _pairs(lines[1:index]), "\n".join(lines[index + 1 :])
    return {}, text


def _pairs(lines: Sequence[str]) -> dict[str, Any]:
    pairs = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and key.strip() and not line.lstrip().startswith("#"):
            name = key.strip()
            pairs[name] = value.strip() if name in ("id", "title", "source") else _typed(value.strip())
    return {key: _unquoted(value) for key, value in pairs.items() if value != "" and key != "text"}


def _typed(value: str) -> Any:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        number = float(value)
    except ValueError:
        return value
    if "_" in value or not any(map(str.isdecimal, value)):
        return value
    return int(value) if math.isfinite(number) and value.lstrip("+-").isdecimal() else number


def _unquoted(value: Any) -> Any:
    quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


_READERS: dict[str, Callable[[Path, str], Read]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
    ".md": _read_markdown,
    ".markdown": _read_markdown,
    ".txt": _read_text,
}
