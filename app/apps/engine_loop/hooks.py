"""Hooks: own code round the steps of the engine, called on the loop's thread (``report`` beside it, in another one).

A hook sees every request as it comes, every step before and after it, and every end. It must be quick: the engine waits
for it. A hook that raises is dropped, and the loop goes on without it.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Protocol

from app.apps.engine_loop.contract import STAGE, Answer, LoopRequest, StepOutput
from app.errors import ConfigError, bounded


class Hook(Protocol):
    """Own code round the steps; :class:`NoHook` has methods that do nothing, to derive from."""

    name: str

    def on_add(self, request: LoopRequest) -> Answer | None:
        """See a request before the engine does. An answer that is returned goes out, and the engine sees nothing."""
        ...

    def before_step(self, running: int) -> None:
        """Be told that a step begins, over so many requests."""
        ...

    def after_step(self, outputs: Sequence[StepOutput]) -> None:
        """See what a step has made, before the callers do."""
        ...

    def on_end(self, request: LoopRequest) -> None:
        """Be told, once for each request that was added, that the engine holds it no more.

        It is answered, aborted or failed, or the loop stops, or the engine died.
        """
        ...

    def report(self) -> dict[str, float]:
        """Return numbers for ``GET …/stats``; the loop's thread may be in another method at that moment."""
        ...


class NoHook:
    """A hook that does nothing."""

    name = "none"

    def on_add(self, request: LoopRequest) -> Answer | None:
        """Let the request go on to the engine."""
        return None

    def before_step(self, running: int) -> None:
        """Do nothing."""

    def after_step(self, outputs: Sequence[StepOutput]) -> None:
        """Do nothing."""

    def on_end(self, request: LoopRequest) -> None:
        """Do nothing."""

    def report(self) -> dict[str, float]:
        """Return no numbers."""
        return {}


def load_hooks(paths: Sequence[str]) -> list[Hook]:
    """Return the hooks of the import paths ``module:Class``, made without arguments.

    Raises :class:`app.errors.ConfigError` naming the one that cannot be made.
    """
    return [_load(path) for path in paths]


def _load(path: str) -> Hook:
    module, _, name = path.partition(":")
    try:
        found: Hook = getattr(importlib.import_module(module), name)()
    except Exception as error:  # whatever an import may raise
        reason = bounded(f"{type(error).__name__}: {error}", 200)
        raise ConfigError(f"hooks: {bounded(path)} cannot be made ({reason})", STAGE) from error
    return found


class StepMeter(NoHook):
    """Counts steps, the tokens they made, and how long they took."""

    name = "steps"

    def __init__(self) -> None:
        self._steps = 0
        self._tokens = 0
        self._seconds = 0.0
        self._most_running = 0
        self._began = 0.0

    def before_step(self, running: int) -> None:
        """Note when the step began."""
        self._most_running = max(self._most_running, running)
        self._began = time.monotonic()

    def after_step(self, outputs: Sequence[StepOutput]) -> None:
        """Add the step up."""
        self._seconds += time.monotonic() - self._began
        self._steps += 1
        self._tokens += sum(len(output.tokens) for output in outputs)

    def report(self) -> dict[str, float]:
        """Return ``count``, ``tokens``, ``milliseconds`` (of all) and ``most_running``."""
        return {
            "count": self._steps,
            "tokens": self._tokens,
            "milliseconds": round(self._seconds * 1000, 1),
            "most_running": self._most_running,
        }
