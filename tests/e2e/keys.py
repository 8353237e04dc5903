"""Secrets of API keys, as an operator makes them."""

import json

from app.keys.file import hash_of
from tests.e2e.kube import kubectl

_SCOPES = {"models": ["*"], "profiles": ["*"], "collections": ["*"], "ingest": True}


def keys_file(**secrets):
    """Return the file of keys with one key per secret, by id."""
    return json.dumps(
        {
            "keys": [
                {"id": name, "secrets": [{"hash": hash_of(secret)}], "scopes": _SCOPES}
                for name, secret in secrets.items()
            ]
        }
    )


def write_secret(name, key, text):
    """Make a Secret, or change it."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: text}}
    kubectl("apply", "-f", "-", text=json.dumps(secret))
