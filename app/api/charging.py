"""What an answer costs a key."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

from app.api.hangup import closing
from app.keys.meter import Meter

E = TypeVar("E")


async def charged(
    events: AsyncIterator[E], meter: Meter, tokens_so_far: Callable[[int, E], int]
) -> AsyncGenerator[E, None]:
    """Pass an answer's events on and charge its tokens at the end, whichever way it ends.

    ``tokens_so_far`` makes of the tokens before an event those with it. Whoever hangs up or runs into an error pays for
    the prompt that was read and the pieces that came: each is a token or more.
    """
    tokens = 0
    try:
        async with closing(events) as stream:
            async for event in stream:
                tokens = tokens_so_far(tokens, event)
                yield event
    finally:
        meter.charge(tokens)
