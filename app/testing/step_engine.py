"""A fake engine that works in steps, for the own engine loop: no model, no GPU, the same manners."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from app.apps.engine_loop.contract import LoopRequest, StepEngine, StepOutput
from app.errors import InvalidRequest

_WORDS = ("Baton", " answers", " step", " by", " step", ".")


class FakeStepEngine:
    """Adds one word per step to each of the first ``places`` requests; the others wait, as in vLLM.

    The words repeat, and the answer ends after ``max_tokens`` of them, or with the words where those are fewer.
    ``seconds_per_step`` sets the pace. ``die_after`` lets the step after so many raise; ``hang`` blocks steps until it
    is set. A request whose sampling has ``refuse`` is refused. ``threads`` holds the names of all threads that called,
    ``aborted`` the ids of requests that were dropped before their end, ``seen`` all that were taken.
    """

    in_process = True

    def __init__(
        self,
        words: Sequence[str] = _WORDS,
        seconds_per_step: float = 0.0,
        places: int = 32,
        die_after: int | None = None,
    ) -> None:
        self._words = tuple(words)
        self._seconds = seconds_per_step
        self._places = places
        self._die_after = die_after
        self._steps = 0
        self._open: dict[str, tuple[LoopRequest, int]] = {}
        self.hang: threading.Event | None = None
        self.threads: set[str] = set()
        self.aborted: list[str] = []
        self.seen: list[LoopRequest] = []
        self.closed = False

    def add(self, request: LoopRequest) -> None:
        """Take a request."""
        self._note_thread()
        if request.sampling.get("refuse"):
            raise InvalidRequest("The fake engine refuses this request.", "engine_loop")
        self.seen.append(request)
        self._open[request.id] = (request, 0)

    def step(self) -> list[StepOutput]:
        """Write the next word of each request at work."""
        self._note_thread()
        if self.hang is not None:
            self.hang.wait()
        time.sleep(self._seconds)
        if self._die_after is not None and self._steps >= self._die_after:
            raise RuntimeError("the fake engine died")
        self._steps += 1
        return [self._next(found) for found in list(self._open)[: self._places]]

    def _next(self, id_: str) -> StepOutput:
        request, place = self._open[id_]
        longest = int(request.sampling["max_tokens"])
        last = min(longest, len(self._words)) if not request.sampling.get("ignore_eos") else longest
        token = place % len(self._words)
        reason = None
        if place + 1 >= last:
            reason = "length" if last == longest else "stop"
            del self._open[id_]
        else:
            self._open[id_] = (request, place + 1)
        return StepOutput(id_, self._words[token], (token,), reason)

    def abort(self, ids: Sequence[str]) -> None:
        """Drop requests."""
        self._note_thread()
        self.aborted += [found for found in ids if self._open.pop(found, None) is not None]

    def unfinished(self) -> int:
        """Return how many requests are open."""
        return len(self._open)

    def close(self) -> None:
        """Note the end."""
        self._note_thread()
        self.closed = True

    def _note_thread(self) -> None:
        self.threads.add(threading.current_thread().name)


def build_fake_engine_loop(args: dict[str, Any]) -> Any:
    """Build the engine loop's application around a :class:`FakeStepEngine`. Import path for Serve.

    ``args`` are those of the application and, under ``fake``, those of the engine.
    """
    from ray import serve

    from app.config.engine_loop import EngineLoopShape
    from app.deployments.engine_loop import EngineLoopServer

    engine = args.pop("fake", {})
    shape = EngineLoopShape.parse(args, "args")

    class FakeEngineLoop(EngineLoopServer):
        """The application with another engine."""

        def _engine(self) -> StepEngine:
            return FakeStepEngine(**engine)

    return (
        serve.deployment(serve.ingress()(FakeEngineLoop))
        .options(name="engine_loop", max_ongoing_requests=4 * shape.most_requests, user_config={})
        .bind(shape.model_dump(mode="json"))
    )
