"""Calls that are sent again because the replica that had them died: few times each, and few of all.

The budget is a bucket of tokens: a repeat takes one, an answered call puts a tenth back. So repeats stay under a tenth
of the calls, however long a stage is in trouble, and a replica's whole load may still move to another one at once. See
"Handling Overload" in Google's book Site Reliability Engineering, and gRPC's proposal A6, "Retry throttling".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.errors import ReplicaLost
from app.metrics import Metrics

T = TypeVar("T")
#: How often a call is sent in all: one that kills whoever works on it must not go round all replicas.
ATTEMPTS = 3
#: Before the second repeat; the first goes out at once, since Serve knows of the other replicas.
_LONGEST_PAUSE_SECONDS = 0.2
_FULL_BUCKET = 100.0
_EARNED_PER_CALL = 0.1


class Retries:
    """The repeats of one stage's calls from this process."""

    def __init__(self, stage: str, metrics: Metrics) -> None:
        self._stage = stage
        self._metrics = metrics
        self._tokens = _FULL_BUCKET

    async def run(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Return what ``attempt(repeated)`` returns; it is made again when it raises :class:`ReplicaLost`.

        The caller's deadline cancels this like any other wait.
        """
        made = 1
        while True:
            try:
                result = await attempt(made > 1)
            except ReplicaLost:
                if not await self.another(made):
                    raise
                made += 1
            else:
                self.answered()
                return result

    def answered(self) -> None:
        """Note a call that was answered."""
        self._tokens = min(_FULL_BUCKET, self._tokens + _EARNED_PER_CALL)

    async def another(self, made: int) -> bool:
        """Tell whether a call that was made ``made`` times and lost its replica may be made again, after a pause."""
        if made >= ATTEMPTS or self._tokens < 1:
            return False
        self._tokens -= 1
        self._metrics.add("baton_retries_total", stage=self._stage)
        if made > 1:
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))  # noqa: S311 - spreads load, hides nothing
        return True
