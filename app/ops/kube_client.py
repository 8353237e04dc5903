"""A client of the Kubernetes API, from a kubeconfig or inside a pod."""

from __future__ import annotations

import os
from typing import Any

from app.errors import ConfigError


def api_client(context: str | None = None) -> Any:
    """Return an ``ApiClient`` for the cluster of the kubeconfig, or inside a pod for its own. Raises ConfigError."""
    from kubernetes import client, config

    settings = client.Configuration()
    settings.retries = 1
    try:
        # Named here, since the library reads the variable once, at import.
        place = os.environ.get("KUBECONFIG")
        config.load_kube_config(place, context=context, client_configuration=settings)
    except config.ConfigException as outside:
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            told = str(outside).rstrip(".")
            raise ConfigError(
                f"No cluster to look at: {told}. Set KUBECONFIG, name a context with --context, or run inside a pod."
            ) from None
    return client.ApiClient(settings)
