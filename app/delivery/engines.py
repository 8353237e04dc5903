"""Which engines get their model's files from us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from app.config.embedder import looks_like_a_path

#: The hook that brings them.
_HOOK = "app.deployments.pulled_model.PulledModel"
_ID = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*/[-._A-Za-z0-9]+")
# Formats that load the files which we fetch; with others the engine fetches what it needs.
_FORMATS = (None, "auto", "hf", "safetensors")


def with_download(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ``LLMConfig`` as JSON with the hook that downloads its model, where a hub id names the model.

    An engine that names a hook of its own (``callback_config``), a path, a bucket or another format stays as it is.
    """
    loading = engine.get("model_loading_config", {})
    source = loading.get("model_source") or loading.get("model_id")
    ours = (
        not engine.get("callback_config")
        and isinstance(source, str)
        and _ID.fullmatch(source)
        and not looks_like_a_path(source)
        and engine.get("engine_kwargs", {}).get("load_format") in _FORMATS
    )
    return {**engine, "callback_config": {"callback_class": _HOOK}} if ours else dict(engine)
