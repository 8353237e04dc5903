"""Whether the gateway asks for API keys."""

from __future__ import annotations

from pydantic import Field

from app.config.base import Config
from app.faults import FILE_PATTERN

#: Where the chart mounts the Secret with the keys.
KEYS_FOLDER = "/etc/baton/keys"


class AuthConfig(Config):
    """API keys (docs/keys.md)."""

    enabled: bool = False
    """Whether every route but health and the page at `/` asks for a key."""
    keys_file: str = Field(default=f"{KEYS_FOLDER}/keys.yaml", pattern=FILE_PATTERN)
    """The file that lists the keys; read again when it changes. The chart mounts `auth.existingSecret` here."""
