"""Works on the batches that came in over the API, in a gateway's process, at low priority.

Each gateway looks for batches that are not over and takes what it finds unlocked; the lock of a batch's ledger keeps
two gateways from the same one, and falls with the gateway that held it, so that another one goes on. Rows go through
the whole API of this gateway, keys and limits of their owner included, without a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from functools import partial

import httpx
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.keys import GRANT
from app.batch.course import Course
from app.batch.ledger import Busy
from app.batch.run import GaveWay, RowMeter
from app.batch.store import OpenBatch, is_free, key_of, open_batches
from app.batch.tidying import tidy
from app.config.batches import BatchesConfig
from app.errors import BatonError, Unauthenticated
from app.keys.ring import Keys
from app.logs import logger
from app.metrics import Metrics

_log = logger("gateway")
_LOOK_SECONDS = 1.0
#: How long a batch rests that could not go on: what stopped it is seldom over a second later.
_REST_SECONDS = 30.0
_TIDY_SECONDS = 600.0


class BatchWorker:
    """The worker of one gateway. It begins once it has both the application and settings with a folder."""

    def __init__(
        self, metrics: Metrics, keys: Keys, look_seconds: float = _LOOK_SECONDS, rest_seconds: float = _REST_SECONDS
    ) -> None:
        self._meter = RowMeter(metrics)
        self._keys = keys
        self._look_seconds = look_seconds
        self._rest_seconds = rest_seconds
        self._app: ASGIApp | None = None
        self._config = BatchesConfig()
        self._ended: set[str] = set()
        self._watch: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._resting: dict[str, float] = {}
        self._served: dict[str, float] = {}

    def serve(self, app: ASGIApp) -> None:
        """Take the application that answers the rows."""
        self._app = app

    def configure(self, config: BatchesConfig) -> None:
        """Take new settings; batches at work keep those that they began with."""
        self._config = config
        if config.folder and self._watch is None:
            self._watch = asyncio.create_task(self._look())
            self._tidying = asyncio.create_task(self._tidy())

    async def close(self) -> None:
        """Stop all work; what is done stays, and another gateway goes on."""
        tasks = [task for task in (self._watch, self._tidying, *self._at_work.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tidy(self) -> None:
        """Remove what is left over, at the start and then now and again."""
        while True:
            try:
                if self._config.folder:
                    await asyncio.to_thread(tidy, self._config)
            except Exception as error:  # whatever it meets, the next time may go well
                _log.warning("gateway: the folder of batches cannot be tidied: %s", type(error).__name__)
            await asyncio.sleep(_TIDY_SECONDS)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await self._take_up()
            except Exception as error:  # whatever one look meets, the next one may go well
                _log.warning("gateway: the folder of batches cannot be read: %s", type(error).__name__)

    async def _take_up(self) -> None:
        """Begin with batches that are not over and that no gateway holds, as many as may be at work.

        Owners take turns: the one who was served longest ago comes first. What is only to be ended needs no place.
        """
        config, app = self._config, self._app
        if not config.folder or app is None:
            return
        candidates = self._idle(await asyncio.to_thread(open_batches, config, self._ended))
        while candidates:
            full = len(self._at_work) >= config.running
            batch = min(candidates, key=lambda found: (not found.asks_nothing, self._turn(found), found.name))
            candidates.remove(batch)
            if full and not batch.asks_nothing:
                return
            await self._begin(config, app, batch)

    def _idle(self, batches: list[OpenBatch]) -> list[OpenBatch]:
        """Return those that are neither at work here nor resting."""
        now = time.monotonic()
        return [
            found for found in batches if found.name not in self._at_work and now >= self._resting.get(found.name, 0)
        ]

    def _turn(self, batch: OpenBatch) -> float:
        return self._served.get(batch.owner, 0.0)

    async def _begin(self, config: BatchesConfig, app: ASGIApp, batch: OpenBatch) -> None:
        """Begin with a batch, unless another gateway has it."""
        name = batch.name
        try:
            others_wait = partial(self._others_wait, config, batch.owner)
            course = await self._locked(Course(config, batch.owner, name, self._meter, others_wait))
        except Busy:
            return
        except (BatonError, OSError, ValueError) as error:  # of this batch: the others go on
            told = error.message if isinstance(error, BatonError) else type(error).__name__
            self._rest(name, f"cannot be taken up: {told}")
            return
        self._resting.pop(name, None)
        self._served[batch.owner] = time.monotonic()
        self._at_work[name] = task = asyncio.create_task(self._work(course, app))
        # Not by the task itself: one that is cancelled before it begins runs no `finally`.
        task.add_done_callback(partial(self._over, course))

    async def _others_wait(self, config: BatchesConfig, owner: str) -> bool:
        """Tell whether another owner's batch could begin in place of one of ``owner``."""
        if len(self._at_work) < config.running:
            return False
        found = self._idle(await asyncio.to_thread(open_batches, config, self._ended))
        others = [batch for batch in found if batch.owner != owner]
        return await asyncio.to_thread(lambda: any(is_free(config, batch) for batch in others))

    async def _locked(self, course: Course) -> Course:
        """Return the course, its ledger locked. Raises Busy where another gateway has it."""
        locking = asyncio.create_task(asyncio.to_thread(course.ledger.lock))
        try:
            await asyncio.shield(locking)
        except asyncio.CancelledError:
            await asyncio.gather(locking, return_exceptions=True)
            course.ledger.close()
            raise
        return course

    def _over(self, course: Course, task: asyncio.Task[None]) -> None:
        del self._at_work[course.name]
        self._served[course.owner] = time.monotonic()
        _close(course)

    def _rest(self, name: str, why: str) -> None:
        _log.warning("gateway: batch %s %s; it is tried again in %g s", name, why, self._rest_seconds)
        self._resting[name] = time.monotonic() + self._rest_seconds

    async def _work(self, course: Course, app: ASGIApp) -> None:
        try:
            transport = httpx.ASGITransport(self._granted(app, course.owner), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                await course.run(client)
        except GaveWay:
            self._rest(course.name, "waits for its key's limits and gave way to another key's")
        except BatonError as error:
            self._rest(course.name, f"stopped: {error.message}")
        except OSError as error:
            self._rest(course.name, f"stopped, its storage fails: {type(error).__name__}")
        except Exception as error:  # never to be lost with the task that nobody waits for
            place = "".join(traceback.format_tb(error.__traceback__))
            self._rest(course.name, f"stopped with {type(error).__name__}\n{place}")
        finally:
            await asyncio.to_thread(_close, course)

    def _granted(self, app: ASGIApp, owner: str) -> ASGIApp:
        """Return the application as the owner's key reaches it, for as long as that key is in force."""

        async def granted(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                grant = self._keys.grant_of(key_of(owner))
            except Unauthenticated as error:
                await JSONResponse(error.body(), error.status)(scope, receive, send)
                return
            await app({**scope, GRANT: grant}, receive, send)

        return granted


def _close(course: Course) -> None:
    with contextlib.suppress(OSError):  # what is not on the disk is asked again
        course.ledger.close()
