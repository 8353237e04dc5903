"""What one key uses, as one gateway replica sees it: requests at work, and a bucket of tokens."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

from app.errors import RateLimitExceeded
from app.keys.file import KeyLimits

_RETRY_AFTER_SECONDS = 1
#: OpenAI's headers that tell where a key stands.
RATE_LIMIT_HEADERS = tuple(f"x-ratelimit-{name}-tokens" for name in ("limit", "remaining", "reset"))


class Meter:
    """Counts one key's requests and tokens against its limits.

    The bucket holds a minute's tokens and fills steadily. An answer's tokens are known at its end only, so they are
    charged then, below zero if need be, and the next question is refused until the bucket is above zero again.
    """

    def __init__(self, limits: KeyLimits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._at_work = 0
        self._level = float(limits.tokens_per_minute or 0)
        self._filled = now()

    @property
    def counts_tokens(self) -> bool:
        """Whether the key has a limit of tokens."""
        return self._limits.tokens_per_minute is not None

    def limit(self, limits: KeyLimits) -> None:
        """Take changed limits; what was used stays used."""
        self._fill()
        had, has = self._limits.tokens_per_minute, limits.tokens_per_minute
        self._limits = limits
        # A bucket that begins to exist is full; one of another size keeps what was taken out of it.
        self._level = float(has or 0) - (had - self._level if had else 0.0)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Count one request while it runs. Raises RateLimitExceeded over the limit."""
        limit = self._limits.concurrency
        if limit is not None and self._at_work >= limit:
            raise RateLimitExceeded(
                f"This key has {self._at_work} requests at work, and {limit} is its limit: wait for one to end.",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1

    def check_tokens(self) -> None:
        """Raise RateLimitExceeded while the bucket is empty; the error says in how many seconds it is not."""
        wait = self._wait()
        if wait > 0:
            raise RateLimitExceeded(
                f"This key has used its {self._limits.tokens_per_minute} tokens a minute: ask again in {wait} s.",
                retry_after_seconds=wait,
            )

    def charge(self, tokens: int) -> None:
        """Take tokens out of the bucket."""
        if self._limits.tokens_per_minute is not None:
            self._fill()
            self._level -= tokens

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return OpenAI's headers that tell where the key stands; none where it has no limit of tokens."""
        limit = self._limits.tokens_per_minute
        if limit is None:
            return []
        self._fill()
        full = (limit - self._level) * 60 / limit
        values = (str(limit), str(max(0, int(self._level))), f"{math.ceil(full)}s")
        return [(name.encode(), value.encode()) for name, value in zip(RATE_LIMIT_HEADERS, values, strict=True)]

    def _wait(self) -> int:
        """Return the whole seconds until the bucket is above zero."""
        limit = self._limits.tokens_per_minute
        if limit is None:
            return 0
        self._fill()
        return 0 if self._level > 0 else math.floor(-self._level * 60 / limit) + 1

    def _fill(self) -> None:
        now = self._now()
        limit = self._limits.tokens_per_minute
        if limit is not None:
            self._level = min(float(limit), self._level + (now - self._filled) * limit / 60)
        self._filled = now


#: Of requests without a key.
UNMETERED = Meter(KeyLimits())
