"""The retriever's Arrow table: how token embeddings are stored, put into the table, and read from it without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.messages import PASSAGE_COLUMNS
from app.stores.contract import Matrix, StoredPassage

#: Token embeddings rest as float16: half the room; as rows have length 1, a dot product is off by less than 0.001.
STORED_DTYPE = np.dtype("<f2")
_SIGN_AND_MAGNITUDE = np.array(0x8FFFE000, np.uint32).view(np.int32)
_EXPONENT_SHIFT = np.float32(2.0**112)


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage found. ``score`` is its cosine similarity to the question; ``text_rank`` counts from 0."""

    passage: StoredPassage
    collection: str
    score: float
    text_rank: int | None = None


def encode_tokens(tokens: npt.NDArray[np.floating]) -> bytes:
    """Return the bytes in which every store keeps a ``(n, dimension)`` matrix: float16, little-endian, by rows."""
    return np.ascontiguousarray(tokens, dtype=STORED_DTYPE).tobytes()


def decode_tokens(blobs: Sequence[bytes], dimension: int) -> tuple[Matrix, npt.NDArray[np.int32]]:
    """Return one float32 ``(total_tokens, dimension)`` matrix and int32 ``(len(blobs) + 1,)`` offsets into its rows."""
    row_bytes = STORED_DTYPE.itemsize * dimension
    counts = [len(blob) // row_bytes for blob in blobs]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    matrix = np.empty((int(offsets[-1]), dimension), np.float32)
    for blob, start, count in zip(blobs, offsets, counts, strict=False):
        _widen(blob, matrix[start : start + count].reshape(-1))
    return matrix, offsets


def _widen(blob: bytes, target: Matrix) -> None:
    """Write finite float16 values into a float32 array by their bits: five times as quick as numpy's own conversion.

    Shifted by 13 a float16's exponent and fraction lie where a float32 has them, but 112 powers of two too low; the
    sign, which int16 extends, is masked back to one bit.
    """
    bits = target.view(np.int32)
    bits[:] = np.frombuffer(blob, "<i2", len(target))
    bits <<= 13
    bits &= _SIGN_AND_MAGNITUDE
    target *= _EXPONENT_SHIFT


def build_table(hits: Sequence[Hit], dimension: int) -> pa.Table:
    """Return the table of ``PASSAGE_COLUMNS``, one chunk per column, rows in the order of ``hits``.

    ``score`` is float32; ``metadata`` is JSON text; ``token_embeddings`` is
    ``list<fixed_shape_tensor<float32>[dimension]>``, never padded.
    """
    matrix, offsets = decode_tokens([hit.passage.tokens for hit in hits], dimension)
    columns = [
        pa.array([hit.passage.id for hit in hits], pa.string()),
        pa.array([hit.passage.text for hit in hits], pa.string()),
        pa.array([hit.score for hit in hits], pa.float32()),
        pa.array([hit.passage.source for hit in hits], pa.string()),
        pa.array([hit.collection for hit in hits], pa.string()),
        pa.array([hit.passage.metadata for hit in hits], pa.string()),
        _token_column(matrix, offsets),
    ]
    return pa.table(columns, names=list(PASSAGE_COLUMNS))


def _token_column(matrix: Matrix, offsets: npt.NDArray[np.int32]) -> pa.Array:
    dimension = matrix.shape[1]
    kind = pa.fixed_shape_tensor(pa.float32(), [dimension])
    storage = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), dimension)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.ExtensionArray.from_storage(kind, storage))


def token_matrix(
    passages: pa.Table, rows: slice | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return the token embeddings of passages without copying them.

    The first array is a read-only float32 ``(tokens, dimension)`` view into the table's own buffer, the second int32
    ``(number of passages + 1,)``: rows ``offsets[i]:offsets[i+1]`` of the first belong to the ``i``-th passage of
    ``rows`` (default: all; steps other than 1 are not supported). Works on tables that came by pickle or Arrow IPC.
    """
    start, stop, step = (rows or slice(None)).indices(passages.num_rows)
    if step != 1:
        raise ValueError("rows must be a slice with step 1")
    column = passages.column("token_embeddings")
    dimension = column.type.value_type.shape[0]
    if stop <= start:
        return np.empty((0, dimension), np.float32), np.zeros(1, np.int32)
    if column.num_chunks != 1:
        raise ValueError("the passages must be one chunk: combine_chunks() them where they are made")
    chunk = column.chunk(0)
    offsets = chunk.offsets.to_numpy()[start : stop + 1]
    flat = chunk.values.storage.values.to_numpy(zero_copy_only=True).reshape(-1, dimension)
    return flat[offsets[0] : offsets[-1]], offsets - offsets[0]
