"""What is seen of a running pipeline beside its metrics: spans and logs. All of it may change while it serves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.config.base import Config
from app.config.profile import Fraction
from app.faults import ENDPOINT_PATTERN


class TracesConfig(Config):
    """Where spans go, and of which requests. Without an endpoint nothing is traced, and nothing is loaded for it."""

    endpoint: Annotated[str, Field(pattern=ENDPOINT_PATTERN)] = ""
    """OTLP over HTTP: the receiver's whole address, such as `http://collector:4318/v1/traces`; empty: no spans."""
    sampling_ratio: Fraction = 1.0
    """Share of the requests that are traced. A caller's `traceparent` that says yes or no goes before it."""
    content: bool = False
    """Whether spans carry prompts and answers, cut at 8,192 characters; whoever reads traces then reads them."""


class LogsConfig(Config):
    """What Baton's and Serve's processes write."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least level that is written; INFO has one line per request."""
    encoding: Literal["JSON", "TEXT"] = "JSON"
    """JSON: one object per line, with the request's id, stage and trace. TEXT: for people, without those fields."""
