"""Baton's loggers: children of Serve's, so that level, encoding, file and rotation are those of the replica.

Serve's JSON lines carry the request's id, application, deployment and replica by themselves; every line of Baton's has
its stage beside them and, where the request is traced, ``trace_id``. No line quotes a prompt or an answer.
"""

from __future__ import annotations

import logging

from app.traces import current_trace_id

#: Below Serve's own logger: what hangs on no replica (tools, tests) is not written anywhere unless it is a warning.
PARENT = "ray.serve.baton"


def logger(stage: str) -> logging.Logger:
    """Return the logger of a stage or another part of Baton."""
    found = logging.getLogger(f"{PARENT}.{stage}")
    found.addFilter(_stamp)
    return found


def _stamp(record: logging.LogRecord) -> bool:
    if not hasattr(record, "stage"):
        record.stage = record.name.removeprefix(f"{PARENT}.")
    if not getattr(record, "trace_id", ""):
        record.trace_id = current_trace_id()
    return True
