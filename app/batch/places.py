"""Where a batch's input and output lie: a file of this machine, or an object of a store (``s3://``, ``gs://``)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from app.errors import ConfigError, InvalidRequest, NotFound, bounded

_KINDS = (".jsonl", ".parquet")
_STORES = ("s3://", "gs://")
_CHUNK = 1 << 20
#: A file that nobody wrote to for so long is no longer written.
_LEFT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Place:
    """A file to read or to write, as a path or a URI that ends with ``.jsonl`` or ``.parquet``."""

    uri: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read a path or URI. Raises InvalidRequest for another kind of file or store."""
        kind = next((kind for kind in _KINDS if text.endswith(kind)), None)
        if kind is None:
            raise InvalidRequest(f"{bounded(text)}: name a file that ends with .jsonl or .parquet", "batch")
        if "://" in text and not text.startswith(_STORES):
            raise InvalidRequest(f"{bounded(text)}: name a file, or an object as s3://… or gs://…", "batch")
        return cls(text, kind)

    @property
    def is_parquet(self) -> bool:
        """Whether the file is a Parquet one."""
        return self.kind == ".parquet"

    @property
    def path(self) -> Path | None:
        """The file of this machine; None for an object of a store."""
        return None if "://" in self.uri else Path(self.uri)

    def check_writable(self) -> None:
        """Refuse a place that cannot be written to, before anything is answered. Raises ConfigError."""
        if self.path is None:
            return
        if self.path.is_dir():
            raise ConfigError(f"{self.uri} is a folder: name a file in it for the output.", "batch")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}."):
                pass
        except OSError as error:
            raise ConfigError(
                f"{self.uri} cannot be written ({error.strerror}): make its folder writable, or name another output.",
                "batch",
            ) from None

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it for reading. Raises NotFound and ConfigError with a sentence."""
        try:
            if self.path is not None:
                if self.path.exists() and not self.path.is_file():
                    raise InvalidRequest(f"{self.uri} is no regular file: write what it gives into one first.", "batch")
                with self.path.open("rb") as found:
                    yield found
                return
            store, name = _store(self.uri)
            with store.open_input_file(name) as found:
                yield cast(BinaryIO, found)
        except FileNotFoundError:
            raise NotFound(f"{self.uri} does not exist.", "batch") from None
        except OSError as error:
            raise ConfigError(f"{self.uri} cannot be read: {error}", "batch") from None

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """Write it whole: until the block ends well, what was there before stays."""
        if self.path is None:
            store, name = _store(self.uri)
            # An object comes into being when its stream is closed, and a block that fails closes it as well.
            with tempfile.TemporaryFile() as whole:
                yield cast(BinaryIO, whole)
                whole.seek(0)
                with store.open_output_stream(name) as sink:
                    shutil.copyfileobj(whole, sink, _CHUNK)
            return
        fresh = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(self.path)
            with fresh.open("wb") as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            fresh.replace(self.path)
        finally:
            fresh.unlink(missing_ok=True)

    @contextmanager
    def open_parquet(self) -> Iterator[Any]:
        """Open it as a Parquet file. Raises InvalidRequest where it is none, or a broken one."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self.open() as source:
            try:
                yield pq.ParquetFile(source)
            except pa.ArrowException as error:
                told = str(error).splitlines()[0][:200]
                raise InvalidRequest(f"{self.uri} is no whole Parquet file: {told}", "batch") from None

    def fingerprint(self) -> str:
        """Return a checksum of the content, by which a changed input is known."""
        digest = hashlib.sha256()
        with self.open() as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
        return f"sha256:{digest.hexdigest()}"


def _remove_leftovers(path: Path) -> None:
    """Remove what runs that were killed while they wrote the same output left beside it."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}")
    for left in path.parent.iterdir():
        if pattern.fullmatch(left.name):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                    left.unlink()


def _store(uri: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        store, name = fs.FileSystem.from_uri(uri)
    except pa.ArrowException as error:
        told = str(error).splitlines()[0][:200]
        raise InvalidRequest(f"{bounded(uri)} names no object: {told}", "batch") from None
    return store, name
