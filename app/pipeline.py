"""The pipeline as the API sees it: :class:`app.jobs.PipelinePort` over the stages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from app.admission import Admission
from app.answering import Answering, Stages
from app.entrance import Entrance, Entry
from app.errors import BatonError, DeadlineExceeded, GuardrailBlocked, model_starting
from app.jobs import ChatEvent, ChatJob, DocumentResult, Embedded, Found, Started, base_model
from app.messages import JudgeRequest, Verdict
from app.notes import note_verdict

#: Ingestion of one request's documents takes longer than an answer: embedding 1,000 documents on two cores.
_INGESTION_SECONDS = 600.0
#: Uploads at work and waiting; more are refused. They share the retriever's machine with questions.
_UPLOADS, _WAITING_UPLOADS = 4, 16
_SLOW_UPLOAD = (
    f"The documents were not embedded within {_INGESTION_SECONDS:.0f} s, so none is stored: send fewer or shorter ones "
    "in one request."
)


class Pipeline:
    """Runs jobs on the stages.

    ``readiness_probe`` tells stage or model name → ``"ready"`` or what is missing; ``model_runs`` whether a model has a
    replica at present, for one may sleep and wake for the first request.
    """

    def __init__(
        self,
        stages: Stages,
        entrance: Entrance,
        readiness_probe: Callable[[], Awaitable[dict[str, str]]],
        model_runs: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._stages = stages
        self._entrance = entrance
        self._readiness_probe = readiness_probe
        self._model_runs = model_runs
        self._uploads = Admission("retriever", _UPLOADS, _WAITING_UPLOADS, stages.metrics)

    async def chat(self, job: ChatJob) -> AsyncGenerator[ChatEvent, None]:
        """Answer a job; see :meth:`app.jobs.PipelinePort.chat`."""
        answering = Answering(self._stages, job)  # before the wait, which is part of the time to the first token
        entry: Entry | None = None
        try:
            entry = await self._entrance.enter(job.engine, job.priority, job.deadline)
            await self._judge_names(job)
            async with aclosing(answering.events()) as events:
                async for event in events:
                    if isinstance(event, Started):
                        entry.started()
                    yield event
        except DeadlineExceeded as error:
            self._note_timeout(error)
            raise await self._reason(error, job.engine) from None
        finally:
            if entry is not None:
                entry.leave()
            answering.close()

    async def retrieve(self, job: ChatJob) -> Found:
        """Search as for a job's answer; see :meth:`app.jobs.PipelinePort.retrieve`."""
        answering = Answering(self._stages, job)
        entry: Entry | None = None
        try:
            entry = await self._entrance.enter(None, job.priority, job.deadline)
            return await answering.found()
        except DeadlineExceeded as error:
            self._note_timeout(error)
            raise
        finally:
            if entry is not None:
                entry.leave()
            answering.close()

    def busy(self, model: str) -> float | None:
        """Return how much of a model's engine is taken; see :meth:`app.jobs.PipelinePort.busy`."""
        return self._entrance.share(base_model(model))

    async def _reason(self, error: DeadlineExceeded, model: str) -> BatonError:
        """Tell a model that is slow from one that was asleep: the second is worth another try."""
        if error.stage == "generator" and not await self._model_runs(model):
            return model_starting(model, error.stage)
        return error

    async def _judge_names(self, job: ChatJob) -> None:
        """Judge the speakers' names, which a chat template may show to the model. Raises GuardrailBlocked.

        A name cannot be redacted: what would be cut out of a text blocks here.
        """
        names = tuple({message.name for message in job.messages if message.name})
        if names and (await self._judged(names, job.policy, job.deadline, job)).action in ("block", "redact"):
            raise GuardrailBlocked(
                "The name of a message was blocked by the guardrail: give the speaker another name.",
                "guardrail",
                "messages",
            )

    async def _judged(
        self, texts: tuple[str, ...], policy: str, deadline: float, job: ChatJob | None = None
    ) -> Verdict:
        judged = self._stages.guardrail.submit(JudgeRequest("input", texts, policy))
        try:
            verdict: Verdict = await judged.result(deadline)
        finally:
            judged.cancel()
        note_verdict(self._stages.metrics, "input", verdict, job)
        return verdict

    def _note_timeout(self, error: DeadlineExceeded) -> None:
        self._stages.metrics.add("baton_timeouts_total", stage=error.stage)

    async def embed(self, texts: Sequence[str], policy: str, deadline: float) -> Embedded:
        """Judge the texts and embed them as queries."""
        entry: Entry | None = None
        try:
            entry = await self._entrance.enter(None, None, deadline)
            verdict = await self._judged(tuple(texts), policy, deadline)
            if verdict.action == "block":
                raise GuardrailBlocked("An input was blocked by the guardrail; rephrase it.", "guardrail", "input")
            embedded: Embedded = await self._manage("embed_queries", list(verdict.texts), by=deadline)
        except DeadlineExceeded as error:
            self._note_timeout(error)
            raise
        finally:
            if entry is not None:
                entry.leave()
        return embedded

    async def list_collections(self, tenant: str = "") -> list[dict[str, Any]]:
        """Return what is known of each collection."""
        collections: list[dict[str, Any]] = await self._manage("list_collections", tenant)
        return collections

    async def delete_collection(self, name: str, tenant: str = "") -> None:
        """Drop a collection. Raises :class:`app.errors.CollectionNotFound`."""
        await self._manage("delete_collection", name, tenant)

    async def delete_documents(self, name: str, ids: Sequence[str], tenant: str = "") -> int:
        """Delete documents by id; returns how many were there."""
        deleted: int = await self._manage("delete_documents", name, list(ids), tenant)
        return deleted

    async def upsert_documents(
        self, name: str, documents: Sequence[Mapping[str, Any]], tenant: str = ""
    ) -> DocumentResult:
        """Chunk, embed and store documents, atomically for readers."""
        deadline = time.monotonic() + _INGESTION_SECONDS
        try:
            async with asyncio.timeout_at(deadline), self._uploads.slot():
                result: DocumentResult = await self._stages.retriever.manage(
                    "upsert_documents", name, list(documents), tenant
                )
        except TimeoutError:
            raise DeadlineExceeded(_SLOW_UPLOAD, "retriever", "documents") from None
        return result

    async def readiness(self) -> dict[str, str]:
        """Return stage or model name → ``"ready"`` or a sentence that says what is missing."""
        return await self._readiness_probe()

    async def _manage(self, method: str, *arguments: Any, by: float | None = None) -> Any:
        deadline = time.monotonic() + _INGESTION_SECONDS if by is None else by
        try:
            async with asyncio.timeout_at(deadline):
                return await self._stages.retriever.manage(method, *arguments)
        except TimeoutError:
            raise DeadlineExceeded(
                f"The retriever did not finish {method} in time: send less at once, or send it again later.",
                "retriever",
            ) from None
