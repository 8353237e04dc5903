"""The contract of a stage: plain Python that knows nothing of Serve or HTTP.

A constructor assigns; ``start`` loads; ``configure`` takes new settings while requests are served; ``run`` works;
``close`` releases. ``run`` is synchronous and may be called from several threads at once. ``configure`` either takes
the whole new configuration or raises :class:`app.errors.ConfigError` and leaves the old one in force.
"""

from __future__ import annotations

from typing import Any, Protocol


class Stage(Protocol):
    """One step of the pipeline, runnable in the gateway's process or as a deployment of its own."""

    name: str

    def start(self) -> None:
        """Load models and open stores. Raises :class:`app.errors.ConfigError` when that cannot be done."""

    def configure(self, settings: Any) -> None:
        """Take new settings, all or nothing."""

    def run(self, request: Any, payload: Any = None) -> Any:
        """Work on one request. ``payload`` is the pipeline's big payload for the stages that read it."""

    def close(self) -> None:
        """Release what ``start`` took."""
