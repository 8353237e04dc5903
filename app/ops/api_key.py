"""The API key that our own commands send: from the environment, never from the command line, which all can read."""

from __future__ import annotations

import os

#: The variable that holds it.
VARIABLE = "BATON_API_KEY"


def api_key() -> str:
    """Return the key; empty where none is given."""
    return os.environ.get(VARIABLE, "").strip()


def key_headers() -> dict[str, str]:
    """Return the headers that carry the key."""
    key = api_key()
    return {"Authorization": f"Bearer {key}"} if key else {}
