"""The tensor that the hand-off bench passes on, and what each stage does with it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

#: float32 columns of the tensor; 4,096 rows of them are 16 MiB. One row is also one page of 4 KiB.
COLUMNS = 1024
PASSAGES = 64
GRAPHS = ("chain", "fan")
#: Tokens of the answer that the postprocessor's work (MaxSim) compares with the tensor.
ANSWER_TOKENS = 64


@cache
def private_array(mib: int) -> np.ndarray:
    """Return the producer's tensor: in private memory, written once, and kept."""
    return np.random.default_rng(mib).random((mib * 256, COLUMNS), dtype=np.float32)


@cache
def passages(count: int = PASSAGES) -> list[dict[str, Any]]:
    """Return the passages that travel beside the tensor."""
    text = "A passage of some sixty tokens, as a retriever finds them for one question of a user. " * 3
    return [{"id": f"doc-{row}", "text": text, "score": 1 / (row + 1), "source": "bench"} for row in range(count)]


def as_table(array: np.ndarray) -> pa.Table:
    """Return the pipeline's payload: passages, and the tensor as a fixed-shape tensor column, without a copy."""
    blocks = array.reshape(PASSAGES, -1, COLUMNS)
    columns: dict[str, Any] = {name: [row[name] for row in passages()] for name in passages()[0]}
    return pa.table(columns | {"token_embeddings": pa.FixedShapeTensorArray.from_numpy_ndarray(blocks)})


@cache
def private_table(mib: int) -> pa.Table:
    """Return the producer's payload, around :func:`private_array`."""
    return as_table(private_array(mib))


def from_table(table: pa.Table) -> np.ndarray:
    """Return the tensor of :func:`as_table`'s table, without a copy."""
    blocks: np.ndarray = table.column("token_embeddings").chunk(0).to_numpy_ndarray()
    return blocks.reshape(-1, COLUMNS)


def touch(array: np.ndarray) -> float:
    """Read one value of every page of 4 KiB."""
    return float(array[:, 0].sum(dtype=np.float64))


@cache
def expected(mib: int) -> float:
    """Return what :func:`touch` finds in an unharmed tensor."""
    return touch(private_array(mib))


@cache
def _answer() -> np.ndarray:
    return np.random.default_rng(1).random((COLUMNS, ANSWER_TOKENS), dtype=np.float32)


def ground(array: np.ndarray) -> float:
    """Do the postprocessor's work, MaxSim of an answer with every passage; returns the same as :func:`touch`."""
    scores = array.reshape(PASSAGES, -1, COLUMNS) @ _answer()
    scores.max(axis=1).sum(axis=1).argmax()
    return touch(array)


def clocked(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of ``work`` and its seconds."""
    start = time.perf_counter()
    result = work(*arguments)
    return result, time.perf_counter() - start


def end_with_parent() -> None:
    """End this process when the one that started it closes our standard input, however it ends."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
