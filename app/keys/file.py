"""The file of keys: which there are, by the hash of their secret, and what each may do.

A secret is 32 random bytes that our own tool made (``python -m app.ops.keys new``), never something that people choose.
There is nothing to guess, so one SHA-256 protects it as well as a slow hash would, and costs a microsecond a request.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from app.config.base import Config, describe
from app.config.yaml_file import read_yaml
from app.errors import ConfigError
from app.faults import KEY_HASH_PATTERN, KEY_PATTERN, SCOPE_PATTERN, TENANT_PATTERN

_SECRET_BYTES = 32
_MARK = "bt-"

KeyName = Annotated[str, Field(pattern=KEY_PATTERN)]
Scope = Annotated[str, Field(pattern=SCOPE_PATTERN)]
Limit = Annotated[int, Field(ge=1)]


class KeySecret(Config):
    """One secret of a key. While a key is rotated it has two."""

    hash: Annotated[str, Field(pattern=KEY_HASH_PATTERN)]
    """SHA-256 of the secret."""
    expires: AwareDatetime | None = None
    """When it stops to open anything; empty: never."""


class KeyScopes(Config):
    """What a key may use: names, or patterns with ``*``. What is left out is nothing."""

    models: tuple[Scope, ...] = ()
    """Models that it may name, the embedding model included."""
    profiles: tuple[Scope, ...] = ()
    """Profiles, each with the model that answers under it."""
    collections: tuple[Scope, ...] = ()
    """Collections to search, list and, with ``ingest``, fill."""
    ingest: bool = False
    """Whether it may store and delete documents."""
    drop: bool = False
    """Whether it may drop whole collections."""


class KeyLimits(Config):
    """What a key may use at once and in time, counted by each replica of the gateway for itself."""

    concurrency: Limit | None = None
    """Requests at work at once; empty: any number."""
    tokens_per_minute: Limit | None = None
    """Tokens of prompts and answers together; empty: any number."""


class KeyEntry(Config):
    """One key."""

    id: KeyName
    """Its name in logs and metrics."""
    secrets: Annotated[tuple[KeySecret, ...], Field(min_length=1)]
    """The secrets that open it."""
    tenant: Annotated[str, Field(pattern=TENANT_PATTERN)] = ""
    """Whose documents it reaches: those stored with keys of the same tenant. Empty: all, as far as its scopes go."""
    scopes: KeyScopes = KeyScopes()
    """What it may use."""
    limits: KeyLimits = KeyLimits()
    """How much of it."""

    @property
    def expires(self) -> float:
        """The time (seconds since 1970) after which no secret opens it; 0: none is known."""
        ends = [0.0 if secret.expires is None else secret.expires.timestamp() for secret in self.secrets]
        return 0.0 if 0.0 in ends else max(ends)


class KeysFile(Config):
    """All keys."""

    keys: tuple[KeyEntry, ...]
    """The keys."""

    @model_validator(mode="after")
    def _nothing_stands_twice(self) -> Self:
        ids = [key.id for key in self.keys]
        hashes = [secret.hash for key in self.keys for secret in key.secrets]
        if twice := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"the id {twice[0]!r} stands twice: give each key its own")
        if len(set(hashes)) < len(hashes):
            raise ValueError("two secrets have the same hash: whose request would it be?")
        return self


def read_keys(path: Path) -> KeysFile:
    """Read the file, YAML or JSON. Raises ConfigError, which never quotes a value: it might be a secret."""
    raw = read_yaml(path, {}, start="make a key with `python -m app.ops.keys new`", echo=False)
    try:
        return KeysFile.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(describe(error, f"{path}:", echo=False)) from None


def new_secret() -> str:
    """Return a fresh secret, which nobody can guess."""
    return _MARK + secrets.token_urlsafe(_SECRET_BYTES)


def hash_of(secret: str) -> str:
    """Return a secret's hash as the file holds it."""
    return f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}"
