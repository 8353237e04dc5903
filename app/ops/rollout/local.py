"""A pipeline on this machine as the target: weights through Serve's REST API, the rollout's record in a file."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from app.config.rollout import Plan
from app.errors import ConfigError, StageUnavailable
from app.ops.rollout.state import Entry, State
from app.ops.rollout.target import Held, Snapshot, Stale, ailing, put_settings, settings_of

_TIMEOUT_SECONDS = 60.0
_TAKES_SECONDS = 30.0
_KEPT = ("proxy_location", "http_options")


class LocalTarget:
    """What ``make run`` started. ``folder``: where the record lies; ``url``: of the dashboard."""

    atomic = False

    def __init__(self, url: str, folder: Path) -> None:
        self._applications = f"{url.rstrip('/')}/api/serve/applications/"
        self._verify = url.startswith("https:")  # certificates take long to load
        self._file = folder / "rollout.json"
        self._lock = folder / "rollout.lock"

    @property
    def record(self) -> str:
        """Where the record lies, for people."""
        return str(self._file)

    def read(self, plan: Plan | State) -> Snapshot:
        """Return what is in force. Raises ConfigError, StageUnavailable."""
        config, statuses = self._serve()
        found = ailing(config, plan, statuses, "deployments")
        return Snapshot(settings_of(config, plan), self.state(), found, config)

    def state(self) -> State | None:
        """Return the record alone. Raises ConfigError."""
        try:
            raw = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._file} cannot be read ({error}): remove it to begin anew.") from None
        return State.parse(raw, f"{self._file}:")

    def write(self, snapshot: Snapshot, state: State) -> None:
        """Write the record, then send the settings: who finds the one without the other sends them again.

        Raises :class:`Stale`, ConfigError, StageUnavailable.
        """
        with self._held(self._file.with_suffix(".write"), wait=True):
            found = self.state()
            if found != snapshot.state:
                raise Stale
            beside = self._file.with_suffix(".new")
            beside.write_text(state.model_dump_json(by_alias=True, indent=2), encoding="utf-8")
            os.replace(beside, self._file)
        if snapshot.settings.equals(state.now):
            return
        config = snapshot.token
        put_settings(config, state, state.now)
        try:
            answer = httpx.put(self._applications, json=config, timeout=_TIMEOUT_SECONDS, verify=self._verify)
        except httpx.HTTPError as error:
            raise StageUnavailable(f"Serve did not take the weights ({type(error).__name__}).") from None
        if answer.status_code != 200:
            raise ConfigError(f"Serve refused the weights: {answer.text[:500]}")
        self._wait(state)

    def announce(self, state: State, entry: Entry) -> None:
        """Do nothing: the runner prints its history, and the record keeps it."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runners away within the block. Raises :class:`Held`; a dead runner's lock is free."""
        with self._held(self._lock, wait=False):
            yield

    def renew(self) -> None:
        """Do nothing: the lock lasts as long as the process."""

    @contextmanager
    def _held(self, path: Path, *, wait: bool) -> Iterator[None]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Held(
                    "Another runner has this rollout: watch it with `status`, end it with `abort`, or stop that runner."
                ) from None
            yield

    def _serve(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the configuration as it was deployed, and the status of the applications."""
        try:
            answer = httpx.get(self._applications, timeout=_TIMEOUT_SECONDS, verify=self._verify)
            answer.raise_for_status()
            body = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise StageUnavailable(
                f"No Baton answers at {self._applications} ({type(error).__name__}): start it with `make run`, or name "
                "the port of its dashboard with --dashboard-port."
            ) from None
        statuses: dict[str, Any] = body.get("applications") or {}
        unknown = [name for name, found in statuses.items() if not _known(found)]
        if unknown:  # sent without it, an application would be removed
            raise StageUnavailable(f"Serve does not tell the configuration of {', '.join(unknown)} at present.")
        configs = [found["deployed_app_config"] for found in statuses.values() if found.get("deployed_app_config")]
        config = {key: body[key] for key in _KEPT if body.get(key) is not None}
        logging = next((found["logging_config"] for found in configs if found.get("logging_config")), None)
        if logging is not None:
            config["logging_config"] = logging
        return {**config, "applications": configs}, statuses

    def _wait(self, state: State) -> None:
        """Wait until Serve says that what was sent is its configuration."""
        end = time.monotonic() + _TAKES_SECONDS
        while not settings_of(self._serve()[0], state).equals(state.now):
            if time.monotonic() > end:
                raise StageUnavailable("Serve took the weights and does not show them.")
            time.sleep(0.2)


def _known(application: dict[str, Any]) -> bool:
    return bool(application.get("deployed_app_config")) or application.get("status") == "DELETING"
