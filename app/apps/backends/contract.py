"""What does the work of a step: one Protocol, read per task, and the way of a local model to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar

from app.apps.messages import Entity, Sentiment, SummaryRequest

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Backend(Protocol[In, Out]):
    """Answers several requests at once, in their order.

    ``batched`` tells whether requests that arrive together should be gathered for it; the core LLM batches by itself.
    """

    batched: bool

    async def start(self) -> None:
        """Load what is needed. Raises :class:`app.errors.ConfigError` naming the source and what to change."""
        ...

    async def answer(self, requests: Sequence[In]) -> Sequence[Out]:
        """Return one answer per request. Raises errors of ``app.errors``."""
        ...


#: Text → how well it speaks.
SentimentJudge: TypeAlias = Backend[str, Sentiment]
#: Text with the bounds of its summary → the summary.
Summariser: TypeAlias = Backend[SummaryRequest, str]
#: Text → the names in it, with their scores, none left out.
EntityFinder: TypeAlias = Backend[str, tuple[Entity, ...]]


class LocalModel(Protocol[In, Out]):
    """A model in this process; both methods block, and ``run`` may be called from several threads."""

    def start(self) -> None:
        """Load it. Raises :class:`app.errors.ConfigError`."""
        ...

    def run(self, requests: Sequence[In]) -> Sequence[Out]:
        """Return one answer per request."""
        ...


class Local(Backend[In, Out]):
    """A model in this process as a backend: off the event loop, in threads of its own."""

    def __init__(self, model: LocalModel[In, Out], threads: int, *, batched: bool = True) -> None:
        self.batched = batched
        self._model = model
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="baton-backend")

    async def start(self) -> None:
        """Load the model."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._model.start)

    async def answer(self, requests: Sequence[In]) -> Sequence[Out]:
        """Run the model on all requests at once."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._model.run, requests)
