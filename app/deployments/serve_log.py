"""Keeps Serve's log of a replica whole while vLLM sets up its own.

``logging.config.dictConfig`` closes every handler of the process, and a closed ``MemoryHandler`` forgets its file: what
the replica logs afterwards is kept in memory for ever and read by nobody, and a controller that starts anew (with a new
head, for instance) asks each replica for that file and takes one that has lost it for broken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler

_SERVE = "ray.serve"


@contextmanager
def kept() -> Iterator[None]:
    """Give Serve's handlers back the files that they have now, however the block ends."""
    handlers = logging.getLogger(_SERVE).handlers
    files = [(handler, handler.target) for handler in handlers if isinstance(handler, MemoryHandler)]
    try:
        yield
    finally:
        for handler, file in files:
            if handler.target is None:
                handler.setTarget(file)
