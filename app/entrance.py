"""The way in: a job waits for a place of its model first, then for one of the gateway, in the order of its class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.line import Classes, Line, Place, Tally
from app.metrics import Metrics


class Entry:
    """The places of one job."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places

    def started(self) -> None:
        """Tell that the job has its first token, so that jobs of lower classes may start."""
        for place in self._places:
            place.started()

    def leave(self) -> None:
        """Give the places back."""
        for place in reversed(self._places):
            place.leave()


@dataclass(frozen=True, slots=True)
class Room:
    """How many jobs there is room for.

    The gateway works on ``max_ongoing`` and lets ``max_queued`` more wait (-1: any number). ``engine_slots(model)``
    tells what a model's replicas work on at once, ``capacity(model)`` how many of its jobs may be at work or wait
    (``None``: not known, any number), ``gateways`` how many gateways share the engines. ``beyond`` more jobs go on to
    an engine that is full: Serve adds replicas by what it sees, and where ``target_ongoing_requests`` is all that a
    replica takes, nothing else would tell it that they are too few.
    """

    max_ongoing: int
    max_queued: int
    engine_slots: Callable[[str], int | None]
    capacity: Callable[[str], int | None]
    gateways: Callable[[], int] = lambda: 1
    beyond: int = 0


class Entrance:
    """Lets jobs in, as many as the engines and the gateway work on at once.

    Refused at the engine, a job has paid for its retrieval already: on two cores 112 refusals then took 14 s, and take
    2 s here.
    """

    def __init__(self, metrics: Metrics, classes: Callable[[], Classes], room: Room) -> None:
        self._classes = classes
        self._room = room
        most = None if room.max_queued < 0 else room.max_ongoing + room.max_queued
        tally = Tally("gateway", metrics)
        self._gateway = Line(tally, classes, slots=lambda: room.max_ongoing, limit=lambda: most)
        self._tally = Tally("generator", metrics)
        self._models: dict[str, Line] = {}

    async def enter(self, model: str | None, priority: str | None, deadline: float) -> Entry:
        """Return the places of a job. ``model`` None: one that asks no engine; ``priority`` None: the highest class.

        Raises :class:`app.errors.Overloaded` and :class:`app.errors.DeadlineExceeded`.
        """
        chosen = priority or self._highest()
        if model is None:
            return Entry((await self._gateway.enter(chosen, deadline),))
        place = await self._line(model).enter(chosen, deadline)
        try:
            return Entry((place, await self._gateway.enter(chosen, deadline)))
        except BaseException:
            place.leave()
            raise

    def share(self, model: str) -> float | None:
        """Return how much of what a model's engine works on at once is taken; over 1 where jobs wait.

        Told from this gateway's jobs, as if the others had as many. None while it is not known what the engine takes.
        """
        places = self._room.engine_slots(model) or self._room.capacity(model)
        return None if places is None else self._line(model).jobs * self._room.gateways() / places

    def _highest(self) -> str:
        classes = self._classes()
        return min(classes, key=lambda name: classes[name].engine_priority)

    def _line(self, model: str) -> Line:
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = Line(
                self._tally,
                self._classes,
                slots=lambda: self._room.engine_slots(model),
                limit=lambda: self._limit(model),
                sharers=self._room.gateways,
                beyond=self._room.beyond,
            )
        return found

    def _limit(self, model: str) -> int | None:
        """Return how many jobs of a model there may be: no more wait for it than may wait for the gateway."""
        slots, limit = self._room.engine_slots(model), self._room.capacity(model)
        if slots is None or self._room.max_queued < 0:
            return limit
        most = slots + self._room.max_queued
        return most if limit is None else min(limit, most)
