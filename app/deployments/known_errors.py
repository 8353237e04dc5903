"""Keeps callers' mistakes out of the log of a stage's replica.

Serve logs each exception that a replica raises as an error with its traceback. For a :class:`ClientError` (an unknown
collection, a faulty filter) that is no fault of ours, and its sentence quotes what the caller sent. The caller gets the
error all the same, and the gateway's log and metrics hold the status.
"""

from __future__ import annotations

import logging

from app.errors import ClientError

SERVE_LOGGER = "ray.serve"


def drop_caller_mistakes(record: logging.LogRecord) -> bool:
    """Tell whether to log a record: not one of a :class:`ClientError`, raised here or in an earlier stage."""
    error = record.exc_info[1] if record.exc_info else None
    return not any(isinstance(found, ClientError) for found in (error, getattr(error, "cause", None)))


def quieten() -> None:
    """Filter Serve's log of this process; doing so twice changes nothing."""
    logging.getLogger(SERVE_LOGGER).addFilter(drop_caller_mistakes)
