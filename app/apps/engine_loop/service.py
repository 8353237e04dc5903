"""One request of the engine loop, from its text to the last piece of its answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from app.apps.engine_loop.contract import STAGE, LoopRequest, StepOutput, TensorPrompt
from app.apps.engine_loop.loop import EngineLoop
from app.apps.engine_loop.prompts import LoopPrompt, Passage, PromptRequest
from app.apps.engine_loop.response_cache import cache_key
from app.apps.engine_loop.splicing import Spliced
from app.deadline import Deadline
from app.errors import GuardrailBlocked, InvalidRequest, deadline_passed
from app.handles import StageCall
from app.handoff import HandoffMeter, HandoffPath
from app.messages import Delta, Direction, JudgeRequest, Message, Usage, Verdict
from app.metrics import Metrics
from app.notes import note_verdict
from app.outgoing import BLOCKED, OutgoingChoice
from app.traces import OFF, Traces

#: How the prompt reaches the engine.
Way = Literal["text", "embeddings"]
HOP = "splicer-engine_loop"


@dataclass(frozen=True, slots=True)
class LoopJob:
    """A request. ``deadline`` is a ``time.monotonic()`` instant; ``sampling`` holds vLLM's parameters."""

    id: str
    messages: tuple[Message, ...]
    system_prompt: str
    policy: str
    deadline: float
    passages: tuple[Passage, ...] = ()
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    way: Way = "text"
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Handoff:
    """How a prompt's tensor came: its bytes, whether it is mapped or not, and the copies of it at each place."""

    nbytes: int
    path: HandoffPath
    copies: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Began:
    """The prompt is in the engine's hands, or on its way there."""

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that passed the guardrail."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """How the answer ended; ``handoff`` where its prompt was a tensor."""

    finish_reason: str
    usage: Usage
    cached: bool = False
    handoff: Handoff | None = None


LoopEvent = Began | Piece | End


class SplicerCall(Protocol):
    """The way to the splicer: :class:`app.handles.RemoteCall`, its results by reference."""

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call ``splice`` with the prompt's parts; returns a :class:`Spliced`."""
        ...


@dataclass(frozen=True, slots=True)
class LoopStages:
    """What a request goes through before the engine; ``splicer`` where prompts may be tensors."""

    guardrail: StageCall
    assembler: StageCall
    splicer: SplicerCall | None = None


class LoopService:
    """Judges, assembles, splices where it is asked to, and reads the answer off the loop through the guardrail."""

    def __init__(
        self,
        model: str,
        loop: EngineLoop,
        stages: LoopStages,
        metrics: Metrics,
        traces: Traces = OFF,
        *,
        caching: bool,
    ) -> None:
        self._model = model
        self._loop = loop
        self._stages = stages
        self._metrics = metrics
        self._traces = traces
        self._meter = HandoffMeter(metrics)
        self._caching = caching
        self._tensors = 0
        self._copies: Counter[str] = Counter()

    async def answer(self, job: LoopJob) -> AsyncGenerator[LoopEvent, None]:
        """Yield ``Began``, pieces and ``End``. However it is left, the engine holds the request no more.

        Raises :class:`app.errors.GuardrailBlocked` for the request; a blocked answer ends with ``content_filter``.
        """
        self._loop.check_room()  # refused later, a request has paid for guardrail and assembly already
        job = await self._judged(job)
        prompt: LoopPrompt = await self._stages.assembler.submit(
            PromptRequest(job.system_prompt, job.messages, job.passages, job.max_tokens)
        ).result(job.deadline)
        tensor, handoff = await self._spliced(job, prompt) if job.way == "embeddings" else (None, None)
        request = await self._request(job, prompt, tensor)
        del tensor  # the engine's request holds it for as long as it is needed
        outgoing = OutgoingChoice(0, lambda asked: self._judge_output(asked, job), job.policy)
        yield Began(request.prompt_tokens)
        tokens, cached = 0, False
        began = time.monotonic()
        span = self._traces.stage(STAGE, call=True)
        with span, closing(Deadline(job.deadline, STAGE)) as deadline:
            async with aclosing(self._loop.generate(request)) as pieces:
                while (piece := await deadline.next_of(pieces)) is not None:
                    if not tokens:
                        self._note_first(began)
                        span.event("first token")
                    tokens, cached = tokens + len(piece.tokens), piece.cached
                    released = await outgoing.push(_delta(piece))
                    if released is not None and released.content:
                        yield Piece(released.content)
                    if outgoing.finish_reason == BLOCKED:
                        break
            span.set(gen_ai__usage__input_tokens=request.prompt_tokens, gen_ai__usage__output_tokens=tokens)
        self._note_end(request, tokens, began)
        note_verdict(self._metrics, "output", _findings(outgoing))
        usage = Usage(request.prompt_tokens, tokens)
        yield End(outgoing.finish_reason or "stop", usage, cached, handoff)

    # --- the way in ---------------------------------------------------------------------------------------------------

    async def _judged(self, job: LoopJob) -> LoopJob:
        judged = [number for number, message in enumerate(job.messages) if message.role in {"user", "tool"}]
        texts = await self._judge("input", tuple(job.messages[number].content for number in judged), job)
        messages = list(job.messages)
        for number, text in zip(judged, texts, strict=True):
            messages[number] = replace(messages[number], content=text)
        if not job.passages:
            return replace(job, messages=tuple(messages))
        found = await self._judge("passage", tuple(passage.text for passage in job.passages), job)
        passages = tuple(replace(old, text=text) for old, text in zip(job.passages, found, strict=True))
        return replace(job, messages=tuple(messages), passages=passages)

    async def _judge(self, direction: Direction, texts: tuple[str, ...], job: LoopJob) -> tuple[str, ...]:
        request = JudgeRequest(direction, texts, job.policy)
        verdict: Verdict = await self._stages.guardrail.submit(request).result(job.deadline)
        note_verdict(self._metrics, direction, verdict)
        if verdict.action == "block":
            finding = next(found for found in verdict.findings if found.action == "block")
            where = f"passages[{finding.text_index}]" if direction == "passage" else "messages"
            raise GuardrailBlocked(
                f"The request was blocked by the guardrail (category {finding.category}); rephrase it.",
                "guardrail",
                where,
            )
        return verdict.texts

    async def _judge_output(self, request: JudgeRequest, job: LoopJob) -> Verdict:
        verdict: Verdict = await self._stages.guardrail.call(request, job.deadline)
        return verdict

    async def _spliced(self, job: LoopJob, prompt: LoopPrompt) -> tuple[TensorPrompt, Handoff]:
        if self._stages.splicer is None:
            raise InvalidRequest(
                "Prompts as embeddings are off here: leave input out, or set embeddings.enabled.", STAGE, "input"
            )
        try:
            async with asyncio.timeout_at(job.deadline):
                spliced: Spliced
                spliced, made = await self._stages.splicer.manage("splice", prompt.parts)
        except TimeoutError:
            raise deadline_passed("splicer") from None
        rows = spliced.rows
        path = self._meter.record_bytes(HOP, rows.__array_interface__["data"][0], rows.nbytes, made)
        copies = {
            "splicer": 1,  # each row is written once, to where it stands in the prompt
            "object_store": 1,
            "engine_loop": int(path != "shared"),
            "engine": int(not self._loop.in_process),
        }
        self._tensors += 1
        self._copies.update(copies)
        return TensorPrompt(rows, spliced.dtype), Handoff(rows.nbytes, path, copies)

    async def _request(self, job: LoopJob, prompt: LoopPrompt, tensor: TensorPrompt | None) -> LoopRequest:
        sampling = {**job.sampling, "max_tokens": prompt.max_tokens}
        key = b""
        if self._caching:
            hashed = (self._model, job.tenant, prompt.tokens if tensor is None else tensor, sampling)
            key = cache_key(*hashed) if tensor is None else await asyncio.to_thread(cache_key, *hashed)
        return LoopRequest(job.id, prompt.tokens, sampling, tensor, job.tenant, key)

    # --- what is seen of it -------------------------------------------------------------------------------------------

    def _note_first(self, began: float) -> None:
        labels = {"model": self._model, "profile": "", "variant": "", "priority": ""}
        self._metrics.add("baton_time_to_first_token_milliseconds", (time.monotonic() - began) * 1000, **labels)

    def _note_end(self, request: LoopRequest, tokens: int, began: float) -> None:
        self._metrics.add("baton_stage_milliseconds", (time.monotonic() - began) * 1000, stage=STAGE)
        self._metrics.add("baton_tokens_total", request.prompt_tokens, model=self._model, direction="in")
        self._metrics.add("baton_tokens_total", tokens, model=self._model, direction="out")

    def report(self) -> dict[str, Any]:
        """Return what the loop and its hooks counted, and the copies of prompts' tensors by where they were made."""
        copies = {"tensors": self._tensors, "copies": dict(self._copies)}
        return {"model": self._model, **self._loop.report(), "embeddings": copies}


def _delta(piece: StepOutput) -> Delta:
    return Delta(0, piece.text, finish_reason=piece.finish_reason)


def _findings(outgoing: OutgoingChoice) -> Verdict:
    findings = tuple(found for gate in outgoing.gates for found in gate.findings)
    return Verdict("allow", findings, (), failed_open=any(gate.failed_open for gate in outgoing.gates))
