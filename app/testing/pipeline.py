"""A scripted pipeline for tests, demonstrations and benches of the gateway: no models, no Ray, no stores."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import GuardrailBlocked, no_collection
from app.jobs import ChatEvent, ChatJob, DocumentResult, Embedded, Finished, Found, Started
from app.messages import ChoiceReport, Citation, Delta, Usage
from app.stores.tenants import stored_id


@dataclass(frozen=True, slots=True)
class FakeScript:
    """What a :class:`FakePipeline` does with each job.

    ``words`` are repeated up to the job's ``max_tokens`` (one word is one token) where ``ignore_eos`` is set, else said
    once. ``delay_seconds`` passes before the first word, ``seconds_per_word`` between words. ``fail_before`` is raised
    instead of starting, ``fail_after`` after ``fail_after_words`` words of each choice. ``blocked_terms`` in a user or
    tool message, a prompt or an embeddings input raise GuardrailBlocked.
    """

    words: tuple[str, ...] = ("Baton", " answers", " from", " its", " documents", ".")
    delay_seconds: float = 0.0
    seconds_per_word: float = 0.0
    fail_before: Exception | None = None
    fail_after: Exception | None = None
    fail_after_words: int = 1
    blocked_terms: tuple[str, ...] = ()
    busy: Mapping[str, float] = field(default_factory=dict)
    dimension: int = 4
    readiness: Mapping[str, str] = field(default_factory=lambda: {"guardrail": "ready", "generator": "ready"})


@dataclass(slots=True)
class FakeCollection:
    """Documents by id. ``fault`` is raised by every use of a collection that is meant to be broken."""

    documents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    fault: Exception | None = None


class FakePipeline:
    """Fulfils :class:`app.jobs.PipelinePort` by its script.

    ``jobs`` holds every job seen, ``running`` counts those at work now, ``closed`` those that ended, in any way.
    """

    def __init__(
        self, script: FakeScript | None = None, collections: Mapping[str, FakeCollection] | None = None
    ) -> None:
        self.script = script or FakeScript()
        self.collections = dict(collections or {})
        self.jobs: list[ChatJob] = []
        self.running = 0
        self.closed = 0

    async def chat(self, job: ChatJob) -> AsyncIterator[ChatEvent]:
        """Answer a job by the script."""
        self.jobs.append(job)
        self.running += 1
        try:
            await self._judge(job)
            yield Started(prompt_tokens=self._prompt_tokens(job))
            said = self._words(job)
            for position, word in enumerate(said):
                await self._pause(position)
                for index in range(job.n):
                    yield Delta(index, word, logprobs=_logprobs(word, job))
            for index in range(job.n):
                yield self._last_delta(index, job, cut=len(said) == job.max_tokens)
            yield self._finished(job, said)
        finally:
            self.running -= 1
            self.closed += 1

    async def retrieve(self, job: ChatJob) -> Found:
        """Return every document of the job's collections, up to its ``top_k``."""
        self.jobs.append(job)
        self.running += 1
        try:
            await self._judge(job)
            passages = [{key: found[key] for key in found.keys() - {"mark"}} for found in self._contexts(job)]
            return Found(tuple(passages), {"guardrail": 0.1, "retriever": 1.0, "total": 1.1})
        finally:
            self.running -= 1
            self.closed += 1

    async def _judge(self, job: ChatJob) -> None:
        self._block(*(turn.content for turn in job.messages if turn.role in ("user", "tool")), job.prompt or "")
        for name in job.retrieval.collections if job.retrieval else ():
            self._collection(name)
        await asyncio.sleep(self.script.delay_seconds)
        if self.script.fail_before is not None:
            raise self.script.fail_before

    def _block(self, *texts: str) -> None:
        if any(term in text for text in texts for term in self.script.blocked_terms):
            raise GuardrailBlocked("The guardrail blocked the request (category: scripted).", stage="guardrail")

    async def _pause(self, position: int) -> None:
        if self.script.fail_after is not None and position == self.script.fail_after_words:
            raise self.script.fail_after
        await asyncio.sleep(self.script.seconds_per_word)

    def _words(self, job: ChatJob) -> tuple[str, ...]:
        if job.tools and job.tool_choice not in (None, "none", "auto"):
            return ()
        words = self.script.words
        if job.max_tokens is None:
            return words
        if job.sampling.get("ignore_eos"):
            words = words * math.ceil(job.max_tokens / len(words))
        return words[: job.max_tokens]

    @staticmethod
    def _prompt_tokens(job: ChatJob) -> int:
        return sum(len(turn.content.split()) for turn in job.messages) + len((job.prompt or "").split())

    def _last_delta(self, index: int, job: ChatJob, cut: bool) -> Delta:
        if job.tools and job.tool_choice not in (None, "none", "auto"):
            name = job.tools[0]["function"]["name"]
            call = {
                "index": 0,
                "id": f"call-{index}",
                "type": "function",
                "function": {"name": name, "arguments": "{}"},
            }
            return Delta(index, tool_calls=(call,), finish_reason="tool_calls")
        return Delta(index, finish_reason="length" if cut else "stop")

    def _finished(self, job: ChatJob, said: tuple[str, ...]) -> Finished:
        contexts = self._contexts(job)
        tokens = Usage(self._prompt_tokens(job), len(said) * job.n)
        reports = tuple(self._report(index, job, said, bool(contexts)) for index in range(job.n))
        return Finished(
            choices=reports,
            usage=tokens,
            stages={"guardrail": 0.1, "generator": 1.0, "first_token": 0.5, "total": 1.2},
            contexts=tuple(contexts) if job.return_contexts else None,
            flags={"without_context": True} if job.retrieval and not contexts else {},
        )

    def _contexts(self, job: ChatJob) -> list[dict[str, Any]]:
        if job.retrieval is None:
            return []
        found = [
            {"id": key, "collection": name, "source": "", "score": 1.0, "text": document["text"]}
            for name in job.retrieval.collections
            for key, document in _own(self.collections[name].documents, job.retrieval.tenant).items()
        ]
        return [{**context, "mark": mark} for mark, context in enumerate(found[: job.retrieval.top_k], 1)]

    @staticmethod
    def _report(index: int, job: ChatJob, said: tuple[str, ...], grounded: bool) -> ChoiceReport:
        text = "".join(said)
        citation = Citation(1, "first", "docs", "", 1.0, 0, len(text))
        checked = None if job.response_format is None else _json_status(text, cut=len(said) == job.max_tokens)
        share = 1.0 if grounded else None
        return ChoiceReport(index, (citation,) if grounded else (), share, share, checked)

    def busy(self, model: str) -> float | None:
        """Return what the script says."""
        return self.script.busy.get(model)

    async def embed(self, texts: Sequence[str], policy: str, deadline: float) -> Embedded:
        """Return unit vectors that depend on the texts' lengths only, and a token per character."""
        self._block(*texts)
        await asyncio.sleep(self.script.delay_seconds)
        rows = np.array([[len(text) + column for column in range(self.script.dimension)] for text in texts], np.float32)
        unit: npt.NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return Embedded(unit, sum(map(len, texts)))

    async def list_collections(self, tenant: str = "") -> list[dict[str, Any]]:
        """Return the collections."""
        found = [self._describe(name, tenant) for name in sorted(self.collections)]
        return [row for row in found if row["documents"] or not tenant]

    def _describe(self, name: str, tenant: str) -> dict[str, Any]:
        count = len(_own(self.collections[name].documents, tenant))
        return {"name": name, "documents": count, "passages": count, "dimension": self.script.dimension}

    async def delete_collection(self, name: str, tenant: str = "") -> None:
        """Drop a collection, or the tenant's documents in it."""
        documents = self._collection(name).documents
        if not tenant:
            del self.collections[name]
        for key in _own(documents, tenant):
            del documents[key]

    async def delete_documents(self, name: str, ids: Sequence[str], tenant: str = "") -> int:
        """Delete documents by id."""
        documents = self._collection(name).documents
        return sum(documents.pop(stored_id(key, tenant), None) is not None for key in ids)

    async def upsert_documents(
        self, name: str, documents: Sequence[Mapping[str, Any]], tenant: str = ""
    ) -> DocumentResult:
        """Store documents; one without an id gets its text as id."""
        stored = self.collections.setdefault(name, FakeCollection()).documents
        fresh = {stored_id(str(document.get("id", document["text"])), tenant): document for document in documents}
        unchanged = sum(stored.get(key) == document for key, document in fresh.items())
        stored.update(fresh)
        return DocumentResult(len(documents), len(documents) - unchanged, unchanged)

    async def readiness(self) -> dict[str, str]:
        """Return what the script says."""
        return dict(self.script.readiness)

    def rescript(self, **changes: Any) -> None:
        """Change parts of the script."""
        self.script = replace(self.script, **changes)

    def _collection(self, name: str) -> FakeCollection:
        if name not in self.collections:
            raise no_collection(name, "retriever", "rag.collection")
        found = self.collections[name]
        if found.fault is not None:
            raise found.fault
        return found


def _own(documents: Mapping[str, Mapping[str, Any]], tenant: str) -> dict[str, Mapping[str, Any]]:
    return {key: document for key, document in documents.items() if key.startswith(stored_id("", tenant))}


def _logprobs(word: str, job: ChatJob) -> tuple[Mapping[str, Any], ...]:
    """Return the word's log probability, asked for or not, as the real pipeline does: confidence rests on it."""
    token = {"token": word, "logprob": -0.5, "bytes": list(word.encode())}
    return ({**token, "top_logprobs": [token] * min(1, job.top_logprobs)},)


def _json_status(text: str, cut: bool) -> dict[str, Any]:
    try:
        json.loads(text)
    except ValueError:
        return {"status": "truncated" if cut else "invalid", "path": None, "message": None, "repaired": None}
    return {"status": "valid", "path": None, "message": None, "repaired": None}
