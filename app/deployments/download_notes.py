"""What a model's download is at, for those who ask the gateway: kept in Ray's own store, as long as it goes on.

Serve has no words of its own for a replica that starts but "has taken more than 30s to initialize".
"""

from __future__ import annotations

_NAMESPACE = "baton-downloads"


def note(application: str, line: str) -> None:
    """Put down how far the download of an application's model is."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(application, line, namespace=_NAMESPACE)


def forget(application: str) -> None:
    """Drop what was put down: the download has ended."""
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(application, namespace=_NAMESPACE)


def noted(application: str) -> str:
    """Return what was put down last, empty where nothing is downloaded."""
    from ray.experimental.internal_kv import _internal_kv_get

    found = _internal_kv_get(application, namespace=_NAMESPACE)
    return found.decode() if found else ""
