"""Who goes next where places are few: jobs wait in one queue per priority class, and the classes take turns.

Turns go by weight with stride scheduling (C. A. Waldspurger and W. E. Weihl, "Stride Scheduling: Deterministic
Proportional-Share Resource Management", MIT/LCS/TM-528, 1995): each start moves its class on by one over its weight,
and the class that is least far goes next. A class that comes back from a pause begins where the others are.

Shares of starts alone do not keep answers quick, because what a lower class has started stays in the engine. So:

- while a higher class is active, a lower one holds no more places than the next whole number above its share (with the
  share itself every delay would cost it a turn); otherwise it leaves a part of them free for whoever comes;
- while no higher class waits, a lower one starts nothing before the higher jobs that were there first have their first
  token: its prompt would be computed in the same steps as theirs.

When no more may wait, a job takes the place in the queue of the newest of the lowest class below its own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.admission import overloaded
from app.config.priorities import PriorityConfig
from app.errors import DeadlineExceeded, Overloaded
from app.metrics import Metrics

Classes = Mapping[str, PriorityConfig]
#: A class that had a job within this time counts as active.
_ACTIVE_SECONDS = 30.0
#: Part of the places that lower classes leave free when no higher one is active.
_KEPT_FREE = 0.25
#: Turns that a class may be owed: one that was held back for long must not have the line to itself afterwards.
_TURNS_OWED = 4
#: Departures from which the line's pace is told.
_DEPARTURES = 32
_SHORTEST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 1, 60


class Tally:
    """Counts what waits and what is at work before one stage, over all of its lines, by priority class."""

    def __init__(self, stage: str, metrics: Metrics) -> None:
        self.stage = stage
        self.metrics = metrics
        self._counts: dict[tuple[str, str], int] = {}

    def change(self, name: str, priority: str, by: int) -> None:
        """Move the gauge ``name`` of a class."""
        count = self._counts[name, priority] = self._counts.get((name, priority), 0) + by
        self.metrics.set(name, count, stage=self.stage, priority=priority)

    def shed(self, priority: str) -> None:
        """Count a refusal."""
        self.metrics.add("baton_sheds_total", stage=self.stage, priority=priority)

    def waited(self, priority: str, seconds: float) -> None:
        """Record a wait."""
        self.metrics.add("baton_queue_milliseconds", seconds * 1000, stage=self.stage, priority=priority)


@dataclass(eq=False, slots=True)
class _Class:
    """State of one class in one line. ``reached`` is how far its turns have got, ``behind`` whom it lets go first."""

    name: str
    config: PriorityConfig
    waiting: OrderedDict[Place, asyncio.Future[None]] = field(default_factory=OrderedDict)
    starting: OrderedDict[Place, int] = field(default_factory=OrderedDict)
    held: int = 0
    reached: float = 0.0
    behind: int | None = None
    seen: float = -math.inf

    @property
    def stride(self) -> float:
        return 1.0 / self.config.weight

    def lies_above(self, other: _Class) -> bool:
        return self.config.engine_priority < other.config.engine_priority

    def is_active(self, now: float) -> bool:
        return self.held > 0 or bool(self.waiting) or now - self.seen < _ACTIVE_SECONDS


class Place:
    """A job's place. ``leave`` it however the job ends; what is called twice changes nothing more."""

    def __init__(self, line: Line, owner: _Class) -> None:
        self._line = line
        self._owner = owner
        self._left = False

    def started(self) -> None:
        """Tell that the job has its first token."""
        self._line._note_first_token(self, self._owner)

    def leave(self) -> None:
        """Give the place to whoever is next."""
        if not self._left:
            self._left = True
            self._line._leave(self, self._owner)


class Line:
    """The queue before something with few places.

    ``slots`` tells how many jobs may be at work, ``limit`` how many may be at work or wait (``None``: any number, or
    not known), ``sharers`` how many lines before the same places there are: each takes its part of what lower classes
    may hold. All are asked anew for each job, and every step takes time by the number of classes, not of jobs.
    ``beyond`` more jobs go on, in their turn, to wait where the places are.
    """

    def __init__(
        self,
        tally: Tally,
        classes: Callable[[], Classes],
        *,
        slots: Callable[[], int | None],
        limit: Callable[[], int | None],
        sharers: Callable[[], int] = lambda: 1,
        beyond: int = 0,
    ) -> None:
        self._beyond = beyond
        self._tally = tally
        self._configured = classes
        self._slots = slots
        self._limit = limit
        self._sharers = sharers
        self._classes: dict[str, _Class] = {}
        self._read: Classes = {}
        self._reached = 0.0
        self._entered = 0
        self._departures: deque[float] = deque(maxlen=_DEPARTURES)

    async def enter(self, priority: str, deadline: float) -> Place:
        """Return a place, waiting for it until ``deadline``, a ``time.monotonic()`` instant.

        Raises :class:`Overloaded` where no more jobs may wait, also of a job that has waited and whose turn somebody
        of a higher class took, and :class:`DeadlineExceeded`.
        """
        owner = self._class(priority)
        self._serve()  # there may be more places than when somebody left last
        self._make_room(owner)
        place, began = Place(self, owner), time.monotonic()
        owner.seen = began
        if not owner.waiting and self._may_start(owner):
            self._start(owner, place)
        else:
            await self._wait(owner, place, deadline)
        self._tally.waited(priority, time.monotonic() - began)
        return place

    # --- classes ----------------------------------------------------------------------------------------------------

    def _class(self, priority: str) -> _Class:
        configured = self._configured()
        if configured is not self._read:
            self._read = configured
            for name, config in configured.items():
                self._known(name, config).config = config
            self._forget()
        return self._known(priority, PriorityConfig())  # of one that is no longer configured

    def _known(self, name: str, config: PriorityConfig) -> _Class:
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = _Class(name, config, reached=self._reached)
        return found

    def _forget(self) -> None:
        """Drop classes that are configured no more and have no job: they would go on ranking above others."""
        kept = self._read.keys() | {name for name, found in self._classes.items() if found.held or found.waiting}
        self._classes = {name: found for name, found in self._classes.items() if name in kept}

    def _above(self, owner: _Class) -> list[_Class]:
        return [found for found in self._classes.values() if found.lies_above(owner)]

    # --- who is refused ---------------------------------------------------------------------------------------------

    def _make_room(self, owner: _Class) -> None:
        """Raise :class:`Overloaded` unless one more job of the class may come, in place of a lower one if need be."""
        most = owner.config.max_queued
        if most is not None and len(owner.waiting) >= most and (owner.waiting or not self._may_start(owner)):
            raise self._refusal(owner)
        limit = self._limit()
        if limit is None or self.jobs < limit:
            return
        below = [found for found in self._classes.values() if found.waiting and owner.lies_above(found)]
        if not below:
            raise self._refusal(owner)
        lowest = max(below, key=lambda found: found.config.engine_priority)
        _, waiter = lowest.waiting.popitem(last=True)
        self._tally.change("baton_queued", lowest.name, -1)
        if not waiter.done():
            waiter.set_exception(self._refusal(lowest))

    @property
    def jobs(self) -> int:
        """How many jobs are at work or wait."""
        return sum(found.held + len(found.waiting) for found in self._classes.values())

    def _refusal(self, owner: _Class) -> Overloaded:
        self._tally.shed(owner.name)
        return overloaded(self._tally.stage, self._retry_after(owner))

    def _retry_after(self, owner: _Class) -> int:
        """Return the seconds in which the class's queue is through at the line's present pace."""
        if len(self._departures) < 2:
            return _SHORTEST_RETRY_SECONDS
        pace = len(self._departures) / max(1e-3, time.monotonic() - self._departures[0])
        wanting = sum(found.config.weight for found in self._classes.values() if found.waiting and found is not owner)
        share = owner.config.weight / (owner.config.weight + wanting)
        seconds = math.ceil((len(owner.waiting) + 1) / (pace * share))
        return min(max(seconds, _SHORTEST_RETRY_SECONDS), _LONGEST_RETRY_SECONDS)

    # --- who waits --------------------------------------------------------------------------------------------------

    async def _wait(self, owner: _Class, place: Place, deadline: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        if not owner.waiting:
            owner.reached = self._resumed(owner)
        owner.waiting[place] = waiter
        self._tally.change("baton_queued", owner.name, 1)
        self._serve()  # with a higher class waiting, a lower one holds back no longer
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except BaseException as ended:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                place.leave()  # its turn came in the same moment
            elif owner.waiting.pop(place, None) is not None:
                self._tally.change("baton_queued", owner.name, -1)
            if isinstance(ended, TimeoutError):
                raise self._late() from None
            raise

    def _late(self) -> DeadlineExceeded:
        stage = self._tally.stage
        return DeadlineExceeded(
            f"The request waited for the {stage} until its deadline: send it again later, or raise timeout_seconds.",
            stage,
        )

    # --- who starts -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Let in whoever may come."""
        while ready := [found for found in self._classes.values() if found.waiting and self._may_start(found)]:
            owner = min(ready, key=lambda found: (self._resumed(found), found.config.engine_priority))
            place, waiter = owner.waiting.popitem(last=False)
            self._tally.change("baton_queued", owner.name, -1)
            if not waiter.done():
                self._start(owner, place)
                waiter.set_result(None)

    def _resumed(self, owner: _Class) -> float:
        owed = _TURNS_OWED * owner.stride if owner.waiting else 0.0
        return max(owner.reached, self._reached - owed)

    def _start(self, owner: _Class, place: Place) -> None:
        at = self._resumed(owner)
        self._reached = max(self._reached, at)
        owner.reached = at + owner.stride
        owner.held += 1
        owner.behind = None
        self._entered += 1
        owner.starting[place] = self._entered
        self._tally.change("baton_ongoing", owner.name, 1)

    def _may_start(self, owner: _Class) -> bool:
        slots = self._slots()
        if slots is None:
            return True
        held = sum(found.held for found in self._classes.values())
        if held >= slots + self._beyond:
            return False
        above = self._above(owner)
        if not above:
            return True
        highest = min(found.config.engine_priority for found in above)
        lower = sum(found.held for found in self._classes.values() if found.config.engine_priority > highest)
        few = lower < max(1, slots - 1) and owner.held < self._most(owner, above, slots)
        return few and self._is_clear(owner, above)

    def _most(self, owner: _Class, above: list[_Class], slots: int) -> int:
        """Return how many places the class may hold now."""
        now = time.monotonic()
        weights = sum(config.weight for config in self._read.values()) or owner.config.weight
        most = math.floor(slots * owner.config.weight / weights) + 1
        if not any(found.is_active(now) for found in above):
            most = max(most, math.floor(slots * (1 - _KEPT_FREE)))
        return math.ceil(most / self._sharers())

    def _is_clear(self, owner: _Class, above: list[_Class]) -> bool:
        """Tell whether the higher jobs that were there first have their first tokens."""
        if any(found.waiting for found in above):
            return True
        numbers = [found.starting.values() for found in above if found.starting]
        if not numbers:
            return True
        if owner.behind is None:
            owner.behind = max(next(reversed(found)) for found in numbers)
        return all(next(iter(found)) > owner.behind for found in numbers)

    # --- who is through ---------------------------------------------------------------------------------------------

    def _note_first_token(self, place: Place, owner: _Class) -> None:
        if owner.starting.pop(place, None) is not None:
            self._serve()

    def _leave(self, place: Place, owner: _Class) -> None:
        owner.starting.pop(place, None)
        owner.held -= 1
        owner.seen = time.monotonic()
        self._departures.append(owner.seen)
        self._tally.change("baton_ongoing", owner.name, -1)
        if owner.name not in self._read:
            self._forget()
        self._serve()
