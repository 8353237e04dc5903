"""The pipeline with variants: counts how their answers end, and sends copies of jobs to those in the shadow."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import Literal

from app.api.context import Outcome, outcome_of
from app.errors import BatonError
from app.jobs import ChatEvent, ChatJob, Finished
from app.logs import logger
from app.pipeline import Pipeline

log = logger("routing")
#: Copies at work at once in one gateway replica; more are dropped.
MAX_SHADOWS = 8
#: A model that is taken to this share has no room for copies.
_BUSY = 0.5
#: The pipeline watches the deadline itself; this is the backstop.
_GRACE_SECONDS = 1.0

#: How an answer of a variant ended: ``filtered`` by the guardrail in mid-answer, ``dropped`` before it began (a copy
#: for which there was no room), or as requests do.
Ending = Literal["filtered", "dropped"] | Outcome


class RoutedPipeline(Pipeline):
    """Runs jobs as :class:`Pipeline` does, and minds their variants."""

    @cached_property
    def _copies(self) -> set[asyncio.Task[None]]:
        return set()

    async def chat(self, job: ChatJob) -> AsyncGenerator[ChatEvent, None]:
        """Answer a job; see :meth:`app.jobs.PipelinePort.chat`.

        Copies begin when the answer is complete, so they take nothing from it. One that the caller left, or that
        failed, has none.
        """
        ending: Ending = "cancelled"
        try:
            async with aclosing(super().chat(job)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        ending = "filtered" if _filtered(event) else "answered"
                        self._begin(job)
                    yield event
        except BatonError as error:
            ending = outcome_of(error.status, error.code, job.own_deadline)
            raise
        except Exception:
            ending = "failed"
            raise
        finally:
            self._count(job.profile, job.variant, job.way, ending)

    def _count(self, profile: str, variant: str, way: str, outcome: Ending) -> None:
        if variant:
            labels = {"profile": profile, "variant": variant, "way": way, "outcome": outcome}
            self._stages.metrics.add("baton_variant_outcomes_total", **labels)

    def _begin(self, job: ChatJob) -> None:
        for shadow in job.shadows:
            if shadow.job is None:
                self._count(shadow.profile, shadow.variant, "shadow", "refused")
            elif len(self._copies) >= MAX_SHADOWS or (self.busy(shadow.job.model) or 0.0) >= _BUSY:
                self._count(shadow.profile, shadow.variant, "shadow", "dropped")
            else:
                copy = replace(shadow.job, deadline=time.monotonic() + shadow.seconds)
                # A context of its own: no span, and nothing of the request's that Serve would cancel with it.
                task = asyncio.create_task(self._shadow(copy), context=contextvars.Context())
                self._copies.add(task)
                task.add_done_callback(self._copies.discard)

    async def _shadow(self, job: ChatJob) -> None:
        try:
            async with asyncio.timeout_at(job.deadline + _GRACE_SECONDS), aclosing(self.chat(job)) as events:
                async for _ in events:
                    pass
        except (BatonError, TimeoutError):  # counted where it ended
            return
        except Exception as error:
            log.warning("the shadow %s failed: %s", job.variant, type(error).__name__)


def _filtered(finished: Finished) -> bool:
    return any(note.direction == "output" and note.action == "block" for note in finished.guardrail)
