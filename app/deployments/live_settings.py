"""Settings that reach a replica (Serve's ``user_config``), and what happens to those that it refuses.

Serve keeps what was sent last, refused or not, and hands it to every replica that starts later. So the settings that a
deployment accepted last are kept beside it, in the cluster: a replica that cannot take what it is given at its start
takes those. Without them a refusal would stop nobody at first, and all service at the next restart.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from app.config.guardrail import GuardrailConfig
from app.config.version import config_version
from app.errors import ConfigError
from app.guard.termfiles import with_terms_inside
from app.logs import logger
from app.metrics import Metrics

log = logger("settings")

_NAMESPACE = "baton"


class Kept(Protocol):
    """Where the settings lie that a deployment accepted last."""

    def read(self) -> Any:
        """Return the record of them; None where there is none."""

    def write(self, record: Any) -> None:
        """Put another record, plain data, in its place."""


class ClusterKept:
    """Keeps them in Ray's own key-value store, as Serve does with its checkpoint: both live as long as the cluster.

    ``kind`` tells apart what one deployment keeps.
    """

    def __init__(self, kind: str = "settings") -> None:
        self._kind = kind

    def read(self) -> Any:
        """Return what any replica of this deployment wrote last; None where none did."""
        from ray.experimental.internal_kv import _internal_kv_get

        found = _internal_kv_get(self._key(), namespace=_NAMESPACE)
        return None if found is None else json.loads(found)

    def write(self, record: Any) -> None:
        """Put another record in its place."""
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(self._key(), json.dumps(record), namespace=_NAMESPACE)

    def _key(self) -> str:
        from ray import serve

        replica = serve.get_replica_context()
        return f"{self._kind}/{replica.app_name}/{replica.deployment}"


def lasting(guardrail: Any) -> dict[str, Any]:
    """Return the guardrail's settings as they may be kept: with the terms of its files, which may change or go away."""
    config = with_terms_inside(GuardrailConfig.parse(guardrail, "guardrail"))
    return config.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def lasting_settings(settings: Any) -> dict[str, Any]:
    """Return an ingress's settings as they may be kept; see :func:`lasting`."""
    return {**settings, "guardrail": lasting(settings.get("guardrail", {}))}


class LiveSettings:
    """Hands a replica its settings.

    ``take`` puts them in force as a whole or raises :class:`ConfigError`; ``lasting`` returns them as they are kept.
    """

    def __init__(
        self,
        deployment: str,
        take: Callable[[Any], Awaitable[None]],
        metrics: Metrics,
        lasting: Callable[[Any], Any] = lambda settings: settings,
        kept: Kept | None = None,
    ) -> None:
        self._deployment = deployment
        self._take = take
        self._metrics = metrics
        self._lasting = lasting
        self._kept = kept or ClusterKept()
        self._in_force = False

    async def reconfigure(self, settings: Any) -> bool:
        """Take settings; return whether they, or those in their place, are the first of this replica.

        Refused ones are logged and counted, and the old ones stay. At a replica's start the old ones are what the
        deployment accepted last; raises :class:`ConfigError` only where there are none, or none that can be taken.
        """
        first = not self._in_force
        try:
            await self._take(settings)
        except ConfigError as error:
            if first:
                await self._take_kept(error)
            self._refused(error)
        else:
            version = config_version(settings)
            self._now_in_force(version)
            await self._keep(settings, version)
        return first

    async def _take_kept(self, refusal: ConfigError) -> None:
        kept = await self._read()
        if kept is None:
            raise refusal
        settings, version = kept
        try:
            await self._take(settings)
        except ConfigError as error:  # they fitted another shape of the pipeline, or a file that is gone
            log.error("%s: the settings accepted last are refused as well: %s", self._deployment, error)
            raise refusal from None
        self._now_in_force(version)

    def _now_in_force(self, version: int) -> None:
        self._in_force = True
        self._metrics.set("baton_config_version", version, deployment=self._deployment)

    def _refused(self, error: ConfigError) -> None:
        log.error("%s: new settings refused, the old ones stay in force: %s", self._deployment, error)
        self._metrics.add("baton_config_refused_total", deployment=self._deployment)

    async def _read(self) -> tuple[Any, int] | None:
        try:
            record = await asyncio.to_thread(self._kept.read)
            return None if record is None else (record["settings"], int(record["version"]))
        except Exception as error:  # the refusal says more than a store that is away, or another Baton's record
            log.warning("%s: the settings accepted last cannot be read: %s", self._deployment, type(error).__name__)
            return None

    async def _keep(self, settings: Any, version: int) -> None:
        def keep() -> None:
            self._kept.write({"version": version, "settings": self._lasting(settings)})

        try:
            await asyncio.to_thread(keep)
        except Exception as error:  # they are in force all the same
            log.warning("%s: the accepted settings cannot be kept: %s", self._deployment, type(error).__name__)
