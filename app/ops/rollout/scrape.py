"""Numbers where there is no Prometheus: read off the metrics page of a pipeline on this machine."""

from __future__ import annotations

import time
from collections import deque

import httpx

from app.config.rollout import Gauge, Judgement
from app.ops.rollout.signals import Scope, Unreachable, counted, measured
from app.ops.top.window import Reading, Window

_TIMEOUT_SECONDS = 10.0
#: A page is read once for the gates of one look.
_FRESH_SECONDS = 1.0


class Scrape:
    """Reads a metrics page and works out the built-in numbers from two readings of it. It knows no PromQL.

    What happened before the first reading does not count, unless ``since_start`` lets all count since the pipeline
    started.
    """

    def __init__(self, url: str, *, since_start: bool = False) -> None:
        self._url = url
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, verify=url.startswith("https:"))
        self._since_start = since_start
        self._readings: deque[Reading] = deque()
        self._longest = 0

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def measure(self, judgement: Judgement, scope: Scope) -> float | None:
        """Return a built-in number; ``None`` where there is none. Raises :class:`Unreachable`."""
        return measured(self._window(scope), _built_in(judgement), scope)

    def basis(self, judgement: Judgement, scope: Scope) -> float:
        """Return how many requests or answers the number is taken of. Raises :class:`Unreachable`."""
        return counted(self._window(scope), _built_in(judgement), scope)

    def _window(self, scope: Scope) -> Window:
        now = time.time()
        readings = self._readings
        if not readings or now - readings[-1].at > _FRESH_SECONDS:
            reading = self._read(now)
            if self._since_start and not readings:
                readings.append(reading.beginning())
            readings.append(reading)
        if self._since_start:
            return Window(readings[0], readings[-1])
        self._longest = max(self._longest, scope.window_seconds)
        while len(readings) > 2 and readings[1].at <= now - self._longest:
            readings.popleft()
        usable = [reading for reading in readings if reading.at >= scope.since] or [readings[-1]]
        old = [reading for reading in usable if reading.at <= now - scope.window_seconds]
        return Window(old[-1] if old else usable[0], readings[-1])

    def _read(self, now: float) -> Reading:
        try:
            answer = self._client.get(self._url)
            answer.raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"{self._url} does not answer ({type(error).__name__})") from None
        return Reading.of([answer.text], now)


def _built_in(judgement: Judgement) -> Gauge:
    if judgement.gate is None:
        raise Unreachable(f"{judgement.title} is a query, and there is no Prometheus to ask: name --prometheus-url")
    return judgement.gate
