"""The one secret of a store, read at start from where the configuration points."""

from __future__ import annotations

import os
from pathlib import Path

from app.config.retrieval import StoreConfig
from app.errors import ConfigError
from app.stores.contract import STAGE


def read_secret(config: StoreConfig) -> str | None:
    """Return the password or API key; None when none is configured. Raises ConfigError naming what is missing."""
    if config.secret_env:
        value = os.environ.get(config.secret_env)
        if not value:
            raise ConfigError(f"store.secretEnv: the environment variable {config.secret_env} is not set", STAGE)
        return value
    if config.secret_file:
        try:
            return Path(config.secret_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            reason = f"{config.secret_file} cannot be read: {error.strerror}"
            raise ConfigError(f"store.secretFile: {reason}", STAGE) from None
    return None
