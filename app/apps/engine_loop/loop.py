"""The loop: one thread adds, steps and aborts; requests on the event loop read what it makes.

The thread makes the engine and is the only one that touches it, so nothing of the engine needs a lock and no step ever
holds the event loop up. What requests want goes to the thread through a queue, in order: an abort never overtakes its
add. After a step everything it made goes over in one call.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Any

from app.admission import overloaded
from app.apps.engine_loop.contract import STAGE, Answer, LoopRequest, StepEngine, StepOutput
from app.apps.engine_loop.hooks import Hook
from app.errors import BatonError, ReplicaLost, StageUnavailable, engine_died
from app.logs import logger
from app.metrics import Metrics

_log = logger(STAGE)
#: How long a stopping replica waits for the step under way.
_STOP_SECONDS = 30.0

#: Something for the thread to do: ``add`` a request, ``abort`` one.
_Order = tuple[str, LoopRequest]


class EngineLoop:
    """Runs a :class:`StepEngine`. ``most`` requests may be there at once, at work and waiting."""

    def __init__(
        self,
        make: Callable[[], StepEngine],
        hooks: Sequence[Hook],
        most: int,
        metrics: Metrics,
        max_step_seconds: float = 120.0,
    ) -> None:
        self._make = make
        self._hooks = tuple(hooks)
        self._most = most
        self._metrics = metrics
        self._max_step_seconds = max_step_seconds
        self._streams: dict[str, _Stream] = {}
        self._orders: deque[_Order] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._ended: BatonError | None = None
        self._step_began: float | None = None
        self._held = 0
        self._thread: threading.Thread | None = None
        self._requests: dict[str, LoopRequest] = {}
        self.in_process = False

    # --- the event loop's side ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the thread and wait until it has made the engine. Raises what making it raises."""
        self._loop = asyncio.get_running_loop()
        made: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(made,), name="baton-engine-loop", daemon=True)
        self._thread.start()
        await made

    def check_room(self) -> None:
        """Raise :class:`app.errors.Overloaded` when all places are taken, and what the engine died of when it did."""
        if self._ended is not None:
            raise self._ended
        if len(self._streams) >= self._most:
            self._metrics.add("baton_sheds_total", stage=STAGE, priority="")
            raise overloaded(STAGE)

    async def generate(self, request: LoopRequest) -> AsyncGenerator[StepOutput, None]:
        """Yield what steps add to the answer; what came in the meantime comes as one piece.

        However the generator ends (end, error, hang-up, cancellation), the engine then holds the request no more.
        Raises :class:`app.errors.Overloaded`, :class:`app.errors.InvalidRequest` and, where the engine died,
        :class:`app.errors.ReplicaLost`.
        """
        self.check_room()
        stream = self._streams[request.id] = _Stream()
        self._note_ongoing()
        self._order("add", request)
        try:
            while not stream.finished:
                yield await stream.read()
        finally:
            del self._streams[request.id]
            self._note_ongoing()
            if not stream.finished:
                self._metrics.add("baton_cancels_total", stage=STAGE)
                self._order("abort", request)

    def check(self) -> None:
        """Raise when the engine is dead or a step hangs, so that Serve replaces the replica."""
        if self._ended is not None:
            raise self._ended
        began = self._step_began
        if began is not None and time.monotonic() - began > self._max_step_seconds:
            raise ReplicaLost(f"A step of the engine takes longer than {self._max_step_seconds:g} s.", STAGE, None, 30)

    def report(self) -> dict[str, Any]:
        """Return what the loop does: requests of callers and of the engine, and what the hooks counted."""
        hooks = {hook.name: self._guarded(hook, hook.report) for hook in self._hooks}
        return {"requests": len(self._streams), "unfinished": self._held, **{k: v for k, v in hooks.items() if v}}

    async def stop(self) -> None:
        """Stop the thread and the engine; requests that are still there fail."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    def _order(self, what: str, request: LoopRequest) -> None:
        with self._wake:
            self._orders.append((what, request))
            self._wake.notify()

    def _note_ongoing(self) -> None:
        self._metrics.set("baton_ongoing", len(self._streams), stage=STAGE, priority="")

    def _hand_out(self, outputs: Sequence[StepOutput]) -> None:
        for output in outputs:
            if (stream := self._streams.get(output.id)) is not None:
                stream.put(output)

    def _fail(self, ids: Sequence[str] | None, error: BatonError) -> None:
        """Fail requests; ``None``: all, those that come later too."""
        if ids is None:
            self._ended = error
        for found in list(self._streams) if ids is None else ids:
            if (stream := self._streams.get(found)) is not None:
                stream.fail(error)

    # --- the thread's side --------------------------------------------------------------------------------------------

    def _run(self, made: asyncio.Future[None]) -> None:
        try:
            engine = self._make()
        except BaseException as error:
            self._tell(_settle, made, error)
            return
        self.in_process = engine.in_process
        self._tell(_settle, made, None)
        try:
            self._work(engine)
            self._tell(self._fail, None, StageUnavailable("The engine loop is stopping.", STAGE, None, 5))
        except BaseException as error:  # whatever it is, the engine is not to be trusted any more
            _log.error("the engine died of %s", type(error).__name__)
            self._tell(self._fail, None, engine_died(STAGE))
        finally:
            self._step_began = None
            try:
                self._end(list(self._requests))  # what a stop or the engine's end left: hooks are told of every end
            finally:
                engine.close()

    def _work(self, engine: StepEngine) -> None:
        while True:
            with self._wake:
                while not (self._orders or self._stopping or self._requests):
                    self._wake.wait()
                if self._stopping:
                    engine.abort(list(self._requests))
                    self._held = engine.unfinished()
                    return
                orders, self._orders = self._orders, deque()
            self._obey(engine, orders)
            if self._requests:
                self._step(engine)
            self._held = engine.unfinished()

    def _obey(self, engine: StepEngine, orders: Collection[_Order]) -> None:
        gone = {request.id for what, request in orders if what == "abort"}
        for what, request in orders:
            # What was hung up on before the engine saw it need not be seen by it.
            if what == "add" and request.id not in gone:
                self._add(engine, request)
        dropped = [found for found in gone if found in self._requests]
        if dropped:
            engine.abort(dropped)
            self._end(dropped)

    def _add(self, engine: StepEngine, request: LoopRequest) -> None:
        self._requests[request.id] = request
        for hook in self._hooks:
            answer = self._guarded(hook, _asked, hook, request)
            if answer is not None:
                self._end([request.id])
                whole = StepOutput(request.id, answer.text, answer.tokens, answer.finish_reason, cached=True)
                self._tell(self._hand_out, [whole])
                return
        try:
            engine.add(request)
        except BatonError as error:
            self._end([request.id])
            self._tell(self._fail, [request.id], error)

    def _step(self, engine: StepEngine) -> None:
        running = len(self._requests)
        for hook in self._hooks:
            self._guarded(hook, hook.before_step, running)
        self._step_began = time.monotonic()
        outputs = engine.step()
        self._step_began = None
        for hook in self._hooks:
            self._guarded(hook, hook.after_step, outputs)
        self._end([output.id for output in outputs if output.finish_reason is not None])
        if outputs:
            self._tell(self._hand_out, outputs)

    def _end(self, ids: Sequence[str]) -> None:
        for found in ids:
            request = self._requests.pop(found, None)
            if request is not None:
                for hook in self._hooks:
                    self._guarded(hook, hook.on_end, request)

    def _guarded(self, hook: Hook, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # a hook must never cost answers
            _log.error("hook %s raised %s and is dropped", hook.name, type(error).__name__)
            # Another tuple: whoever goes through this one goes on.
            self._hooks = tuple(kept for kept in self._hooks if kept is not hook)
            return None

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)


def _asked(hook: Hook, request: LoopRequest) -> Answer | None:
    answer = hook.on_add(request)
    if not isinstance(answer, Answer | None):
        raise TypeError("on_add returns an Answer or None")
    return answer


def _settle(made: asyncio.Future[None], error: BaseException | None) -> None:
    if made.cancelled():
        return
    if error is None:
        made.set_result(None)
    else:
        made.set_exception(error)


class _Stream:
    """One answer on its way from the thread to its reader."""

    def __init__(self) -> None:
        self._pieces: list[StepOutput] = []
        self._error: BatonError | None = None
        self._news = asyncio.Event()
        self.finished = False

    def put(self, output: StepOutput) -> None:
        self._pieces.append(output)
        self._news.set()

    def fail(self, error: BatonError) -> None:
        self._error = error
        self._news.set()

    async def read(self) -> StepOutput:
        """Return all that came since the last time. Raises what the loop failed with."""
        await self._news.wait()
        self._news.clear()
        pieces, self._pieces = self._pieces, []
        if not pieces:
            self.finished = True
            raise self._error or StageUnavailable("The engine loop is stopping.", STAGE, None, 5)
        if self._error is not None:
            self._news.set()
        last = pieces[-1]
        self.finished = last.finish_reason is not None
        return StepOutput(
            last.id,
            "".join(piece.text for piece in pieces),
            tuple(token for piece in pieces for token in piece.tokens),
            last.finish_reason,
            last.cached,
        )
