"""What arguments of command lines are read as; each refuses in a sentence what no command could mean."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from urllib.parse import urlsplit

from app.errors import bounded

_LONGEST_NUMBER = 20


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        digits = text.removeprefix("-")
        fits = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER
        if not fits or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most} (got {bounded(text)})")
        return int(text)

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Return a reader of numbers from ``least`` to ``most``."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least:g} to {most:g} (got {bounded(text)})")
        return found

    return read


def gateway(text: str) -> str:
    """Read the address of a gateway; what OpenAI's clients have behind it (``/v1``) is left out."""
    try:
        parts = urlsplit(text.strip())
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError(f"{bounded(text)} is no address: write it like http://localhost:8000")
    return text.strip().rstrip("/").removesuffix("/v1").rstrip("/")


port = whole(1, 65535)
#: How long a command may be told to wait: a day.
waiting = whole(0, 86_400)
