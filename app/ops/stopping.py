"""Work that Ctrl-C may interrupt: the signal sets an event, and whoever waits looks at it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

_POLL_SECONDS = 0.1

Result = TypeVar("Result")


class Signals:
    """Turns SIGINT and SIGTERM into ``stop``, told by ``tell``.

    A second one calls ``last`` and ends the process at once, with code 130.
    """

    def __init__(self, stop: threading.Event, tell: Callable[[], None]) -> None:
        self.stop = stop
        self.last: Callable[[], object] = lambda: None
        self._tell = tell
        self._asked = False
        self._breaks = False

    def catch(self) -> None:
        """Take over the signals, now and again after something else took them (Ray takes SIGTERM)."""
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Let the first signal raise ``KeyboardInterrupt`` as well, in a block that cannot look at ``stop``."""
        self._breaks = True
        try:
            if self._asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._breaks = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            self.last()
            os._exit(130)  # a second Ctrl-C means it
        self._asked = True
        # In a thread: what the signal interrupts may hold the lock of the event or of the output.
        threading.Thread(target=self._ask).start()
        if self._breaks:
            raise KeyboardInterrupt

    def _ask(self) -> None:
        try:
            self._tell()
        finally:
            self.stop.set()


def until_stopped(work: Callable[[], Result], stop: threading.Event, seconds: float | None = None) -> Result | None:
    """Return what ``work`` returns, or None as soon as ``stop`` is set or ``seconds`` are over.

    Raises what ``work`` raises. Abandoned work goes on in a daemon thread, and what becomes of it is not told.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        done.set()

    threading.Thread(target=run, daemon=True).start()
    waited = 0.0
    while not stop.is_set() and not done.wait(_POLL_SECONDS):
        waited += _POLL_SECONDS
        if seconds is not None and waited >= seconds:
            return None
    if errors and not stop.is_set():
        raise errors[0]
    return results[0] if results else None
