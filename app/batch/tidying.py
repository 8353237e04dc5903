"""Removes what nobody asks for any more from the folder of files and batches, beside gateways that work in it.

Three kinds of things go: what a crash left half made, batches that ended ``keepDays`` ago, files whose time is over.
A folder counts as half made once nobody has written into it for an hour. Files and batches go within an owner's
:func:`app.batch.store.turn`, in which batches are made as well, so that no batch begins with a file that goes; what a
batch that is not over names always stays. Where something of an owner cannot be read, nothing of it goes.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.batch.store import BATCH_ID, ENDED, FILE_ID, Batches, Files, names, output_ids, owners, remove, turn
from app.config.batches import BatchesConfig
from app.errors import BatonError
from app.logs import logger

_log = logger("gateway")
#: Longer than clocks of nodes differ and than any write takes.
_TORN_SECONDS = 3600.0
_DAY_SECONDS = 24 * 3600.0
_FILE, _BATCH = "meta.json", "batch.json"


def tidy(config: BatchesConfig) -> None:
    """Remove all that may go. What fails with one owner is logged, and stops no other one's."""
    for owner in owners(config):
        try:
            _Owner(config, owner).tidy()
        except (BatonError, OSError, ValueError, KeyError) as error:
            told = error.message if isinstance(error, BatonError) else type(error).__name__
            _log.warning("gateway: nothing of %s goes, its files and batches cannot be tidied: %s", owner, told)


class _Owner:
    """What one owner left."""

    def __init__(self, config: BatchesConfig, owner: str) -> None:
        self._config = config
        self._owner = owner
        self._folder = Path(config.folder) / owner
        self._now = time.time()

    def tidy(self) -> None:
        with turn(self._folder):
            states = Batches(self._config, self._owner).list_all()
            self._remove_torn()
            kept = [state for state in states if not self._remove_batch(state)]
            self._remove_files(kept)

    def _remove_torn(self) -> None:
        for kind, pattern, whole in (("files", FILE_ID, _FILE), ("batches", BATCH_ID, _BATCH)):
            for name in names(self._folder / kind, pattern):
                place = self._folder / kind / name
                if not (place / whole).exists():
                    if self._is_old(place):
                        shutil.rmtree(place, ignore_errors=True)
                    continue
                for left in place.glob(".*"):
                    if self._is_old(left):
                        left.unlink(missing_ok=True)

    def _remove_batch(self, state: Mapping[str, Any]) -> bool:
        """Remove a batch that ended long ago; tells whether it was one."""
        folder = self._folder / "batches" / state["id"]
        if state["status"] not in ENDED:
            return False
        if not self._is_past(state.get(f"{state['status']}_at", state["created_at"])):
            progress = folder / "progress"
            if progress.exists() and self._is_old(progress):
                shutil.rmtree(progress, ignore_errors=True)
            return False
        remove(folder, _BATCH)
        return True

    def _remove_files(self, kept: list[dict[str, Any]]) -> None:
        """Remove files whose time is over; without one of their own, it begins once no batch names them any more."""
        held = {file_id for state in kept if state["status"] not in ENDED for file_id in _files_of(state)}
        named = {file_id for state in kept for file_id in _files_of(state)}
        for meta in Files(self._config, self._owner).list_all():
            file_id, end = meta["id"], meta.get("expires_at")
            over = self._now >= end if end is not None else self._is_past(meta["created_at"]) and file_id not in named
            if over and file_id not in held:
                remove(self._folder / "files" / file_id, _FILE)

    def _is_past(self, moment: float) -> bool:
        """Tell whether a moment is longer ago than things are kept."""
        days = self._config.keep_days
        return days > 0 and self._now - moment > days * _DAY_SECONDS

    def _is_old(self, place: Path) -> bool:
        """Tell whether nobody writes there any more."""
        with contextlib.suppress(FileNotFoundError):
            return self._now - max(_changes(place)) > _TORN_SECONDS
        return False


def _files_of(state: Mapping[str, Any]) -> Iterator[str]:
    yield state["input_file_id"]
    yield from output_ids(state["id"]).values()


def _changes(place: Path) -> Iterator[float]:
    yield place.lstat().st_mtime
    if place.is_dir():
        yield from (inner.lstat().st_mtime for inner in place.iterdir())
