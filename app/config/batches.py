"""OpenAI's Files and Batches endpoints: whether there are any, and how much one key may leave there."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.config.base import Config
from app.config.profile import Count, Name
from app.faults import FOLDER_PATTERN


class BatchesConfig(Config):
    """Files and batches (docs/batch.md)."""

    folder: str = Field(default="", pattern=FOLDER_PATTERN)
    """Where they are kept: a folder that all gateways share, with `flock` between them. Empty: there are no such
    endpoints."""
    priority: Name = "batch"
    """The priority class of rows that name none."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 8
    """Rows of a batch that are asked at once."""
    running: Annotated[int, Field(ge=1, le=64)] = 1
    """Batches that one gateway works on at once; the others wait."""
    max_file_bytes: Count = 100 * 1024 * 1024
    """Largest file; uploads are larger than other requests may be (limits.maxBodyBytes)."""
    max_files: Count = 200
    """Most files of one key, outputs included."""
    max_rows: Count = 50_000
    """Most rows of one batch."""
    max_row_bytes: Count = 1024 * 1024
    """Longest row in bytes; a longer one fails, the others do not."""
    max_open: Count = 20
    """Most batches of one key that wait or are at work."""
    max_hours: Annotated[int, Field(ge=1, le=720)] = 168
    """Longest `completion_window`, in hours."""
    keep_days: Annotated[int, Field(ge=0, le=3650)] = 30
    """Days after which a batch that is over goes, and a file that no batch names any more; 0: they stay until they are
    deleted."""
