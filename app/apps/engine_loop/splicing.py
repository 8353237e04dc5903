"""Splicing: a prompt written in the model's own embedding space, part by part, into one contiguous tensor.

The prompt is tokenised as a whole and cut into parts afterwards, at token borders: parts that are tokenised one by one
would meet in other tokens than the text does. So at temperature 0 the tensor's answer has the tokens of the text's.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import InvalidRequest

#: Rows of an embedding: (tokens, hidden size); ``uint16`` where the model's type is bfloat16.
Rows = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A run of the prompt's tokens. ``shared``: other prompts are likely to hold it (a passage), so its rows are kept.

    ``rows`` are there where somebody computed them before; without them the tokens are looked up.
    """

    tokens: tuple[int, ...]
    shared: bool = False
    rows: Rows | None = None


@dataclass(frozen=True, slots=True)
class Spliced:
    """The tensor, with torch's name of its type; ``written`` and ``kept``: rows looked up, and rows that were there."""

    rows: Rows
    dtype: str
    written: int
    kept: int


def cut(tokens: Sequence[int], ends: Sequence[int], spans: Sequence[tuple[int, int]]) -> tuple[Part, ...]:
    """Return the prompt's tokens as parts: each of ``spans`` one that is shared, what lies between as parts of its own.

    ``ends`` are the characters at which the tokens end, ``spans`` ascending stretches of characters. A token that
    reaches over a border belongs to what comes before it.
    """
    begins = [0, *ends[:-1]]
    borders = [0]
    for start, end in spans:
        borders += [bisect_left(begins, start), bisect_left(begins, end)]
    borders.append(len(tokens))
    parts = (
        Part(tuple(tokens[begin:until]), shared=place % 2 == 1)
        for place, (begin, until) in enumerate(pairwise(borders))
    )
    return tuple(part for part in parts if part.tokens)


class Splicer:
    """Writes prompts with the rows of ``matrix``, (vocabulary, hidden size). Thread-safe.

    Rows of shared parts are kept by their tokens, least recently used first out, up to ``most_parts`` and
    ``most_bytes``.
    """

    def __init__(self, matrix: Rows, dtype: str, most_parts: int, most_bytes: int) -> None:
        self._matrix = matrix
        self._dtype = dtype
        self._kept = _KeptRows(most_parts, most_bytes)

    def splice(self, parts: Sequence[Part]) -> Spliced:
        """Return the parts as one contiguous tensor, each row written once.

        Raises :class:`app.errors.InvalidRequest` for tokens that the matrix does not have and for rows of another form.
        """
        length = sum(len(part.tokens) for part in parts)
        hidden = self._matrix.shape[1]
        target = np.empty((length, hidden), self._matrix.dtype)
        place = kept = 0
        for part in parts:
            window = target[place : place + len(part.tokens)]
            place += len(part.tokens)
            rows = self._known(part)
            if rows is not None:
                window[:] = rows
                kept += len(part.tokens)
            else:
                self._look_up(part, window)
        target.flags.writeable = False
        return Spliced(target, self._dtype, length - kept, kept)

    def _known(self, part: Part) -> Rows | None:
        if part.rows is not None:
            wanted = (len(part.tokens), self._matrix.shape[1])
            if part.rows.shape != wanted or part.rows.dtype != self._matrix.dtype:
                raise InvalidRequest(
                    f"Rows of a part have the form {part.rows.shape} {part.rows.dtype}; the model's have {wanted} "
                    f"{self._matrix.dtype}.",
                    "splicer",
                )
            return part.rows
        return self._kept.get(part.tokens) if part.shared else None

    def _look_up(self, part: Part, window: Rows) -> None:
        ids = np.asarray(part.tokens, np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= len(self._matrix)):
            raise InvalidRequest(f"A token is outside of the model's {len(self._matrix)}.", "splicer")
        np.take(self._matrix, ids, axis=0, out=window, mode="clip")  # other modes write through a buffer
        if part.shared:
            self._kept.put(part.tokens, window)

    def report(self) -> dict[str, int]:
        """Return ``parts`` and ``bytes`` of what is kept."""
        return self._kept.report()


class _KeptRows:
    """Rows by a hash of their tokens."""

    def __init__(self, most_parts: int, most_bytes: int) -> None:
        self._most_parts = most_parts
        self._most_bytes = most_bytes
        self._rows: OrderedDict[bytes, Rows] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, tokens: Sequence[int]) -> Rows | None:
        key = _key(tokens)
        with self._lock:
            found = self._rows.get(key)
            if found is not None:
                self._rows.move_to_end(key)
            return found

    def put(self, tokens: Sequence[int], rows: Rows) -> None:
        if rows.nbytes > self._most_bytes:
            return
        own, key = rows.copy(), _key(tokens)
        with self._lock:
            if key in self._rows:
                return
            self._rows[key] = own
            self._bytes += own.nbytes
            while len(self._rows) > self._most_parts or self._bytes > self._most_bytes:
                self._bytes -= self._rows.popitem(last=False)[1].nbytes

    def report(self) -> dict[str, int]:
        with self._lock:
            return {"parts": len(self._rows), "bytes": self._bytes}


def _key(tokens: Sequence[int]) -> bytes:
    return hashlib.blake2b(np.asarray(tokens, np.int64).data, digest_size=16).digest()
