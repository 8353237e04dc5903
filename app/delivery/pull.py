"""Bring a model's files here, wherever they come from."""

from __future__ import annotations

from pathlib import Path

from app.config.embedder import looks_like_a_path
from app.delivery.folder import pull_from_path, pull_from_url
from app.delivery.hub import find_in_cache, pull_from_hub
from app.delivery.progress import Say
from app.errors import ConfigError, bounded


def pull(source: str, folder: Path | None, say: Say) -> Path:
    """Return the folder that holds the model's files, with their manifest.

    ``source`` is a Hugging Face id (``owner/name``, or ``owner/name@revision``), which comes into the hub's cache; a
    folder of the web with a manifest, which comes into ``folder``; or a folder of this machine, which is copied there
    or, without one, gets its manifest where it is. Raises :class:`ConfigError` with a sentence.
    """
    if source.startswith(("http://", "https://")):
        if folder is None:
            raise ConfigError(f"Name the folder that {bounded(source, 300)} comes into: --out DIR.", "models")
        return pull_from_url(source, folder, say)
    if looks_like_a_path(source):
        return pull_from_path(Path(source).expanduser(), folder, say)
    if folder is not None:
        raise ConfigError(f"{bounded(source, 300)} comes into the hub's cache: set HF_HUB_CACHE, not --out.", "models")
    model, _, revision = source.partition("@")
    return pull_from_hub(model, revision or "main", say)


def find(source: str) -> Path:
    """Return the folder of a model that was pulled, by the same names. Raises :class:`ConfigError` when it is not."""
    if looks_like_a_path(source):
        return Path(source).expanduser()
    model, _, revision = source.partition("@")
    folder = find_in_cache(model, revision or "main")
    if folder is None:
        raise ConfigError(f"{bounded(source, 300)} does not lie whole in the hub's cache: pull it.", "models")
    return folder
