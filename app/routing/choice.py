"""Which variant a caller gets: the same one in every process and at every time, as far as the weights allow.

Weighted rendezvous hashing: each variant draws a number for the caller, which its weight shrinks; the smallest wins.
A variant that grows takes callers from the others and gives up none of its own; those who move are as many as its share
grew by. Neither depends on the order of the variants, which YAML tools change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b

#: Numbers that a float tells apart, with room for the half that keeps 0 and 1 out.
_STEPS = 2**52
#: Characters of a caller's own name that count; more would make a long name cost time.
STICKY_CHARS = 256


def drawn(*parts: str) -> float:
    """Return a number between 0 and 1, both excluded, that depends on the parts alone."""
    digest = blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest) % _STEPS + 0.5) / _STEPS


def chosen(salt: str, key: str, weights: Mapping[str, float]) -> str:
    """Return the variant of a caller with this key; ``salt`` sets tests apart from each other.

    Each variant is drawn with its share of the weights; at least one weight must be above 0.
    """
    return min(
        (name for name, weight in weights.items() if weight > 0),
        key=lambda name: (-math.log(drawn(salt, name, key)) / weights[name], name),
    )


def sampled(salt: str, key: str, share: float) -> bool:
    """Tell whether a request belongs to a share, 0 to 1, of all requests."""
    return drawn(salt, key) < share
