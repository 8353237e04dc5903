"""Runs a stage in this process: off the event loop, in threads of its own, with live settings that never half apply.

The same runners serve a stage in the gateway's process (``app/handles.py: LocalCall``) and in a deployment of its own
(``app/deployments/stages.py``), so a stage behaves the same in both places.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from ray import serve

from app.config.guardrail import GuardrailConfig
from app.config.pipeline import BatchingShape
from app.errors import InvalidRequest
from app.logs import logger
from app.messages import Action, Finding, JudgeRequest, RetrievalQuery, Retrieved, Verdict
from app.metrics import Metrics
from app.notes import note_index
from app.stopping import stoppable
from app.traces import OFF, Traces

log = logger("runner")

#: A text up to this many characters is judged on the event loop: 2 KB take well under a millisecond, and a switch of
#: threads per generated token would cost more than the judgement.
_INLINE_CHARS = 4096
#: Threads for everything that is not a request's work: they must never keep questions waiting.
_MANAGE_THREADS = 4
#: Uploads take minutes: they have threads of their own, so that lists and embeddings do not wait for them.
_UPLOAD, _UPLOAD_THREADS = "upsert_documents", 16
#: How often the size of the collections is looked up.
_INDEX_SECONDS = 30.0


class StageRunner:
    """Runs ``stage.run`` in ``threads`` threads."""

    def __init__(self, stage: Any, threads: int) -> None:
        self.stage = stage
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"baton-{stage.name}")
        self._manage_threads = ThreadPoolExecutor(_MANAGE_THREADS, thread_name_prefix=f"baton-{stage.name}-manage")
        self._upload_threads = ThreadPoolExecutor(_UPLOAD_THREADS, thread_name_prefix=f"baton-{stage.name}-upload")

    async def start(self) -> None:
        """Load the stage."""
        await self._off_loop(self.stage.start)

    async def configure(self, settings: Any) -> None:
        """Hand new settings to the stage. Raises :class:`app.errors.ConfigError`; the old ones then stay in force."""
        await self._off_loop(self.stage.configure, settings)

    async def run(self, request: Any, payload: Any = None) -> Any:
        """Run the stage on one request."""
        return await self._off_loop(self.stage.run, request, payload)

    def run_now(self, request: Any) -> Any:
        """Return None: this stage's work takes longer than a switch of threads."""
        return None

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another public method of the stage; whoever cancels it tells its thread to stop."""
        if method.startswith("_") or not callable(getattr(self.stage, method, None)):
            raise InvalidRequest(f"The {self.stage.name} has no method {method!r}.", self.stage.name)
        work, stop = stoppable(getattr(self.stage, method), *arguments)
        threads = self._upload_threads if method == _UPLOAD else self._manage_threads
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except asyncio.CancelledError:
            stop()
            raise

    async def close(self) -> None:
        """Release the stage and its threads."""
        await self._off_loop(self.stage.close)
        self._threads.shutdown(wait=False)
        for threads in (self._manage_threads, self._upload_threads):
            threads.shutdown(wait=False)

    async def _off_loop(self, work: Callable[..., Any], *arguments: Any) -> Any:
        # In the request's context, so that what a stage logs carries the request's id and trace.
        run = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(run, work, *arguments))


def settle() -> None:
    """Take what a replica is made of out of the garbage collector's sight.

    A full collection walks everything that was imported, which stopped a replica for up to 0.9 s in mid-request.
    """
    gc.collect()
    gc.freeze()


class GuardrailRunner(StageRunner):
    """Judges short texts on the spot, and the passages of a payload where a request brings one."""

    _classifying: frozenset[str] = frozenset()

    async def configure(self, settings: GuardrailConfig) -> None:
        """Hand new settings to the stage and note which policies ask a classifier: those never run on the loop."""
        await super().configure(settings)
        self._classifying = frozenset(name for name, policy in settings.policies.items() if policy.classifier)

    async def run(self, request: JudgeRequest, payload: Retrieved | None = None) -> Verdict:
        """Return the verdict on the request's texts, or on the payload's passages that may reach the prompt."""
        if payload is not None:
            return await self._judge_passages(request, payload)
        verdict: Verdict = self.run_now(request) or await self._off_loop(self.stage.run, request)
        return verdict

    def run_now(self, request: JudgeRequest) -> Verdict | None:
        """Judge short texts; None for long ones, and where a classifier is asked."""
        # A classifier never judges an answer that is still being written.
        quick = request.direction == "output" or request.policy not in self._classifying
        if not quick or sum(map(len, request.texts)) > _INLINE_CHARS:
            return None
        verdict: Verdict = self.stage.run(request)
        return verdict

    async def _judge_passages(self, request: JudgeRequest, payload: Retrieved) -> Verdict:
        """Judge text and source of each passage: both reach the prompt. A source that offends blocks its passage."""
        shown = payload.passages.select(["text", "source"]).slice(0, payload.top_k)
        texts = shown.column("text").to_pylist()
        sources = [source or "" for source in shown.column("source").to_pylist()]
        verdict: Verdict = await self._off_loop(self.stage.run, replace(request, texts=(*texts, *sources)))
        findings = tuple(_on_its_row(found, len(texts)) for found in verdict.findings)
        return replace(verdict, findings=findings, texts=verdict.texts[: len(texts)])


def _on_its_row(found: Finding, rows: int) -> Finding:
    if found.text_index < rows:
        return found
    action: Action = "flag" if found.action == "flag" else "block"
    return replace(found, text_index=found.text_index - rows, action=action)


class RetrieverRunner(StageRunner):
    """Gathers questions that arrive together into one call of the embedder (Serve's dynamic batching)."""

    def __init__(self, stage: Any, shape: BatchingShape, metrics: Metrics, traces: Traces = OFF) -> None:
        super().__init__(stage, shape.threads)
        self._metrics = metrics
        self._traces = traces
        self._watch: asyncio.Task[None] | None = None
        self._batched = serve.batch(
            max_batch_size=shape.max_batch_size,
            batch_wait_timeout_s=shape.batch_wait_seconds,
            max_concurrent_batches=shape.threads,
        )(self._run_batch)

    async def start(self) -> None:
        """Load the stage and begin to watch the size of its collections."""
        await super().start()
        self._watch = asyncio.create_task(self._watch_index())

    async def close(self) -> None:
        """Release the stage and its threads."""
        if self._watch is not None:
            self._watch.cancel()
        await super().close()

    async def _watch_index(self) -> None:
        """Record the index's size again and again: Jobs and other replicas write it as well."""
        noted: frozenset[str] = frozenset()
        while True:
            try:
                noted = note_index(self._metrics, await self.manage("list_collections"), noted)
            except Exception as error:
                log.warning("the size of the index is not known: %s", type(error).__name__)
            await asyncio.sleep(_INDEX_SECONDS)

    async def _run_batch(self, queries: list[RetrievalQuery], spans: list[Any]) -> list[tuple[Retrieved | Exception]]:
        # Wrapped in tuples: one question's error must not become the error of the whole batch.
        with self._traces.batch(self.stage.name, spans):
            results = await self._off_loop(self.stage.run_batch, queries)
        return [(result,) for result in results]

    async def run(self, request: RetrievalQuery, payload: Any = None) -> Retrieved:
        """Search for one question. Raises what went wrong with this question alone."""
        (result,) = await self._batched(request, self._traces.current())
        if isinstance(result, Exception):
            raise result
        found: Retrieved = result
        return found
