"""Batches that the chart runs, once or on a schedule."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.config.base import Config
from app.config.chart.pods import Resources
from app.config.profile import Name

#: A batch's name, which names of objects hold.
BatchName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$")]
#: A file of rows: on the batch's volume, or an object of a store. Nothing that a shell reads otherwise.
BatchFile = Annotated[str, Field(pattern=r"^(/|s3://|gs://)[-A-Za-z0-9._/{}@+=]+\.(jsonl|parquet)$")]


class BatchValues(Config):
    """A file of requests that a Job answers (docs/batch.md)."""

    input: BatchFile
    """The rows: .jsonl or .parquet, on `volume` or in an object store. `{date}` stands for the day (UTC) of a start."""
    output: BatchFile
    """Where the answers go. What is done is kept beside it, or on `volume` where it lies in an object store."""
    engine: Literal["shared", "own"] = "shared"
    """`shared`: the release's own, at low priority, asked by a Job. `own`: a RayJob with a Ray cluster of the same
    groups beside it, for as long as it takes."""
    schedule: str = Field(default="", pattern=r"^([-0-9A-Za-z*/,]+( [-0-9A-Za-z*/,]+){4})?$")
    """When it runs, as cron writes it (`0 1 * * *`); empty: once, and again when these values change."""
    volume: dict[str, object] | None = None
    """Source of a volume (`persistentVolumeClaim`, …), verbatim, mounted at `mountPath`."""
    mount_path: str = Field(default="/batch", pattern=r"^/[-A-Za-z0-9._/]+$")
    """Where the volume is mounted."""
    priority: Name = "batch"
    """Priority class of rows that name none."""
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 16
    """Rows that are asked at once."""
    retry_failed: bool = False
    """Whether rows that failed in an earlier run are asked again."""
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "512Mi"}, limits={"memory": "2Gi"})
    """Requests and limits of the Job's pod; with `engine: own` the head's own hold."""
