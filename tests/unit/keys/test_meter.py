"""The limits of one key."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from app.errors import RateLimitExceeded
from app.keys.file import KeyLimits
from app.keys.meter import Meter


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_key_without_limits_is_never_refused() -> None:
    meter = Meter(KeyLimits())
    meter.charge(10**9)
    meter.check_tokens()
    assert meter.headers() == []
    with meter.at_work(), meter.at_work():
        pass


def test_requests_at_work_are_counted_until_they_end() -> None:
    meter = Meter(KeyLimits(concurrency=2))
    with meter.at_work(), meter.at_work():
        with (
            pytest.raises(RateLimitExceeded, match="2 requests at work, and 2 is its limit") as caught,
            meter.at_work(),
        ):
            pass
        assert caught.value.headers() == {"Retry-After": "1"}
    with pytest.raises(ZeroDivisionError), meter.at_work():
        raise ZeroDivisionError
    with meter.at_work(), meter.at_work():
        pass


def test_tokens_are_charged_afterwards_and_the_wait_is_named_in_whole_seconds() -> None:
    clock = Clock()
    meter = Meter(KeyLimits(tokens_per_minute=60), clock)
    meter.check_tokens()
    meter.charge(70)
    with pytest.raises(RateLimitExceeded, match="60 tokens a minute: ask again in 11 s") as caught:
        meter.check_tokens()
    assert caught.value.retry_after_seconds == 11
    clock.now += 10
    with pytest.raises(RateLimitExceeded):
        meter.check_tokens()
    clock.now += 1
    meter.check_tokens()


def test_a_bucket_holds_a_minute_and_no_more() -> None:
    clock = Clock()
    meter = Meter(KeyLimits(tokens_per_minute=60), clock)
    clock.now += 3600
    meter.charge(30)
    assert dict(meter.headers()) == {
        b"x-ratelimit-limit-tokens": b"60",
        b"x-ratelimit-remaining-tokens": b"30",
        b"x-ratelimit-reset-tokens": b"30s",
    }


@pytest.mark.parametrize(("limit", "remaining"), [(120, 90), (60, 30), (20, 0), (None, None)])
def test_what_was_used_stays_used_when_the_limit_changes(limit: int | None, remaining: int | None) -> None:
    meter = Meter(KeyLimits(tokens_per_minute=60), Clock())
    meter.charge(30)
    meter.limit(KeyLimits(tokens_per_minute=limit))
    headers = dict(meter.headers())
    assert headers.get(b"x-ratelimit-remaining-tokens") == (None if remaining is None else str(remaining).encode())


def test_a_limit_that_begins_to_exist_starts_with_a_full_bucket() -> None:
    meter = Meter(KeyLimits(), Clock())
    meter.limit(KeyLimits(tokens_per_minute=60))
    assert dict(meter.headers())[b"x-ratelimit-remaining-tokens"] == b"60"
