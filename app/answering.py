"""The course of one job through the stages: judge, retrieve, assemble, generate, judge again, post-process."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from app.deadline import Deadline
from app.errors import GuardrailBlocked
from app.finishing import PassageVerdict, best_of, contexts_of, flags_of, passages_of
from app.handles import Pending, StageCall
from app.handoff import HandoffMeter
from app.jobs import ChatEvent, ChatJob, Finished, Found, GuardrailNote, Started
from app.messages import (
    AssembleRequest,
    Direction,
    GenerateRequest,
    JudgeRequest,
    PostprocessRequest,
    Prompt,
    Report,
    Retrieved,
    Usage,
    Verdict,
)
from app.metrics import Metrics
from app.notes import labels_of, note_prompt, note_report, note_retrieved, note_verdict
from app.outgoing import OutgoingChoice
from app.span_facts import answers_of, facts_of, question_of
from app.stages.generator import Generator
from app.traces import NO_SPAN, OFF, Span, Traces

#: From this length on a conversation is measured before anything is retrieved for it: embedding the question of one
#: that the window cannot hold took 1.5 s of a core, and the assembler's refusal takes 0.05.
_LONG_CHARACTERS = 8_000
#: Candidates of a profile without sampling would all be the same; they are sampled with this temperature instead.
_CANDIDATE_TEMPERATURE = 0.7
_STRICTNESS = ("allow", "flag", "redact", "block")


@dataclass(frozen=True)
class Stages:
    """The way to every stage, as one process sees it."""

    guardrail: StageCall
    retriever: StageCall
    assembler: StageCall
    postprocessor: StageCall
    generator: Generator
    metrics: Metrics
    meter: HandoffMeter
    traces: Traces = OFF


@dataclass
class Answering:
    """State of one job. ``events`` runs it; ``close`` stops whatever still works on it."""

    stages: Stages
    job: ChatJob
    milliseconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    verdicts: dict[Direction, list[Verdict]] = field(default_factory=lambda: defaultdict(list))
    usage: Usage = field(default_factory=Usage)
    prompt_tokens: int = 0
    passages: PassageVerdict = field(default_factory=PassageVerdict)
    choices: list[OutgoingChoice] = field(default_factory=list)
    _pending: list[Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self._first_piece = self._last_piece = 0.0
        self._span_above = self.stages.traces.current()
        self._judging_since = 0

    # --- before the first piece -------------------------------------------------------------------------------------

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield ``Started``, the deltas that passed the guardrail, and ``Finished``."""
        self.job = await self._judged_input()
        if self.job.retrieval and sum(len(message.content) for message in self.job.messages) > _LONG_CHARACTERS:
            await self._assemble(None)
        retrieved = self._retrieve()
        prompt = await self._assembled(retrieved)
        self.choices = choices = [
            OutgoingChoice(index, self._judge_output, self.job.policy)
            for index in range(max(self.job.n, self.job.n_candidates))
        ]
        ranked = len(choices) > self.job.n
        if ranked and self._greedy:
            self.job = replace(self.job, sampling={**self.job.sampling, "temperature": _CANDIDATE_TEMPERATURE})
        async with aclosing(self._generated(prompt, choices)) as events:
            async for event in events:
                if not ranked or isinstance(event, Started):
                    yield event
        report = await self._report(choices, prompt, retrieved)
        if ranked:
            report, deltas = best_of(report, choices)
            for delta in deltas:
                yield delta
        note_report(self.stages.metrics, report, self.job)
        yield await self._finished(report, prompt, retrieved)

    async def found(self) -> Found:
        """Return the passages that the answer would rest on, as the guardrail lets them through."""
        self.job = await self._judged_input()
        retrieved = self._retrieve()
        payload = await self._judged_payload(retrieved) if retrieved else None
        shown = () if payload is None else passages_of(payload, self.passages)
        flags = {"question_truncated": True} if payload is not None and payload.question_truncated else {}
        self.milliseconds["total"] = (time.monotonic() - self.started) * 1000
        return Found(tuple(passage for _, passage in shown), dict(self.milliseconds), tuple(self._notes()), flags)

    async def _judged_input(self) -> ChatJob:
        job = self.job
        if job.prompt is not None:
            verdict = await self._judge("input", (job.prompt,))
            return replace(job, prompt=verdict.texts[0])
        judged = [number for number, message in enumerate(job.messages) if message.role in {"user", "tool"}]
        verdict = await self._judge("input", tuple(job.messages[number].content for number in judged))
        if verdict.action != "redact":
            return job
        messages = list(job.messages)
        for number, text in zip(judged, verdict.texts, strict=True):
            messages[number] = replace(messages[number], content=text)
        question = next((message.content for message in reversed(messages) if message.role == "user"), "")
        retrieval = replace(job.retrieval, text=question) if job.retrieval else None
        return replace(job, messages=tuple(messages), retrieval=retrieval)

    async def _judge(self, direction: Direction, texts: tuple[str, ...]) -> Verdict:
        verdict = await self._verdict(JudgeRequest(direction, texts, self.job.policy))
        if verdict.action == "block":
            finding = next(found for found in verdict.findings if found.action == "block")
            raise GuardrailBlocked(
                f"The request was blocked by the guardrail (category {finding.category}); rephrase it.",
                "guardrail",
                "prompt" if self.job.prompt is not None else self.job.question_field,
            )
        return verdict

    async def _verdict(self, request: JudgeRequest, payload: Pending | None = None) -> Verdict:
        with self._timed("guardrail"):
            pending = self._submit(self.stages.guardrail, request, payload)
            verdict: Verdict = await pending.result(self.job.deadline)
        self.verdicts[request.direction].append(verdict)
        note_verdict(self.stages.metrics, request.direction, verdict, self.job)
        return verdict

    def _retrieve(self) -> Pending | None:
        query = self.job.retrieval
        return None if query is None else self._submit(self.stages.retriever, query)

    async def _assembled(self, retrieved: Pending | None) -> Prompt | None:
        if self.job.prompt is not None:
            return None
        if retrieved is not None:
            await self._judged_payload(retrieved)
        prompt = await self._assemble(retrieved)
        note_prompt(self.stages.metrics, prompt)
        return prompt

    async def _judged_payload(self, retrieved: Pending) -> Retrieved:
        """Wait for what was retrieved and note what the guardrail makes of it."""
        with self._timed("retriever"):
            payload: Retrieved = await retrieved.result(self.job.deadline)
        self.stages.meter.record("retriever-gateway", payload, payload.made)
        note_retrieved(self.stages.metrics, payload)
        self.passages = await self._judged_passages(retrieved)
        return payload

    async def _assemble(self, retrieved: Pending | None) -> Prompt:
        """Build the prompt. Raises :class:`app.errors.ContextLengthExceeded` when even the question does not fit."""
        job = self.job
        request = AssembleRequest(
            model=job.engine,
            system_prompt=job.system_prompt,
            messages=job.messages,
            max_tokens=job.max_tokens,
            tools=job.tools,
            blocked_rows=self.passages.blocked,
            passage_texts=self.passages.redacted,
            retrieval=retrieved is not None,
            context_tokens=job.context_tokens,
        )
        with self._timed("assembler"):
            prompt: Prompt = await self._submit(self.stages.assembler, request, retrieved).result(job.deadline)
        return prompt

    async def _judged_passages(self, retrieved: Pending) -> PassageVerdict:
        verdict = await self._verdict(JudgeRequest("passage", (), self.job.policy), retrieved)
        blocked = {found.text_index for found in verdict.findings if found.action == "block"}
        redacted = {found.text_index for found in verdict.findings if found.action == "redact"} - blocked
        return PassageVerdict(tuple(sorted(blocked)), {row: verdict.texts[row] for row in sorted(redacted)})

    @property
    def _greedy(self) -> bool:
        return self.job.sampling.get("temperature") == 0

    # --- the stream -------------------------------------------------------------------------------------------------

    async def _generated(self, prompt: Prompt | None, choices: list[OutgoingChoice]) -> AsyncGenerator[ChatEvent, None]:
        first = True
        self.prompt_tokens = prompt.tokens if prompt else 0
        # The engine refuses several choices without sampling: they would all be the same, so one is copied.
        copies = len(choices) if self._greedy else 1
        span = self.stages.traces.stage("generator", call=True)
        request = self._generate_request(prompt, len(choices) // copies, span)
        with self._timed("generator"), self._generating(span, request), closing(self._deadline()) as deadline:
            async with aclosing(self.stages.generator.run(request)) as deltas:
                while (delta := await deadline.next_of(deltas)) is not None:
                    if delta.usage is not None:
                        self.usage = replace(delta.usage, completion_tokens=delta.usage.completion_tokens * copies)
                        continue
                    if first:
                        first = False
                        self._note_first_token()
                        span.event("first token")
                        yield Started(self.prompt_tokens)
                    self._last_piece = time.monotonic()
                    for piece in (delta,) if copies == 1 else [replace(delta, index=index) for index in range(copies)]:
                        outgoing = await choices[piece.index].push(piece)
                        if outgoing is not None:
                            yield outgoing
                    if all(choice.finish_reason == "content_filter" for choice in choices):
                        break

    def _deadline(self) -> Deadline:
        return Deadline(self.job.deadline, "generator")

    @contextmanager
    def _generating(self, span: Span, request: GenerateRequest) -> Iterator[None]:
        """Note on the generator's span what came out of it, however it ended."""
        with span:
            try:
                yield
            finally:
                if span is not NO_SPAN:
                    self._note_generated(span, request)

    def _note_generated(self, span: Span, request: GenerateRequest) -> None:
        span.set(
            gen_ai__usage__input_tokens=self.usage.prompt_tokens or self.prompt_tokens,
            gen_ai__usage__output_tokens=self.usage.completion_tokens or sum(choice.pieces for choice in self.choices),
            gen_ai__response__finish_reasons=[choice.finish_reason or "none" for choice in self.choices],
        )
        if self.stages.traces.content:
            answers = [choice.text for choice in self.choices]
            span.set(gen_ai__input__messages=question_of(request), gen_ai__output__messages=answers_of(answers))

    def _generate_request(self, prompt: Prompt | None, n: int, span: Span) -> GenerateRequest:
        job = self.job
        request = GenerateRequest(
            model=job.model,
            request_id=job.request_id,
            messages=prompt.messages if prompt else (),
            prompt=job.prompt,
            max_tokens=prompt.max_tokens if prompt else job.max_tokens or 16,
            n=n,
            sampling=job.sampling,
            tools=job.tools,
            tool_choice=job.tool_choice,
            response_format=_enforced(job.response_format),
            logprobs=True,
            top_logprobs=job.top_logprobs,
            priority=job.engine_priority,
            trace=span.handed_on.get("trace"),
        )
        span.found(request)
        return request

    async def _judge_output(self, request: JudgeRequest) -> Verdict:
        start = time.monotonic()
        self._judging_since = self._judging_since or time.time_ns()
        verdict: Verdict = await self.stages.guardrail.call(request, self.job.deadline)
        self.milliseconds["guardrail"] += (time.monotonic() - start) * 1000
        return verdict

    # --- after the last piece ---------------------------------------------------------------------------------------

    async def _report(self, choices: list[OutgoingChoice], prompt: Prompt | None, retrieved: Pending | None) -> Report:
        request = PostprocessRequest(
            choices=tuple(choice.choice() for choice in choices),
            rows=prompt.rows if prompt else (),
            response_format=self.job.response_format,
            keep=self.job.n,
        )
        with self._timed("postprocessor"):
            report: Report = await self._submit(self.stages.postprocessor, request, retrieved).result(self.job.deadline)
        return report

    async def _finished(self, report: Report, prompt: Prompt | None, retrieved: Pending | None) -> Finished:
        self.milliseconds["total"] = (time.monotonic() - self.started) * 1000
        if self.usage == Usage():  # a blocked answer ends before the engine tells
            self.usage = Usage(self.prompt_tokens, sum(choice.pieces for choice in self.choices))
        flags: dict[str, Any] = {}
        contexts = None
        if prompt is not None:
            payload: Retrieved | None = None if retrieved is None else await retrieved.result(self.job.deadline)
            flags = flags_of(prompt, payload)
            if payload is not None and self.job.return_contexts:
                contexts = tuple(contexts_of(prompt, payload, self.passages))
        return Finished(
            choices=report.choices,
            usage=self.usage,
            stages={name: round(value, 2) for name, value in self.milliseconds.items()},
            guardrail=tuple(self._notes()),
            contexts=contexts,
            flags=flags,
        )

    def _output_verdicts(self) -> list[Verdict]:
        gates = (gate for choice in self.choices for gate in choice.gates)
        return [Verdict(gate.action, tuple(gate.findings), (), failed_open=gate.failed_open) for gate in gates]

    def _notes(self) -> Iterator[GuardrailNote]:
        for direction, verdicts in {**self.verdicts, "output": self._output_verdicts()}.items():
            categories = Counter(found.category for verdict in verdicts for found in verdict.findings)
            failed_open = any(verdict.failed_open for verdict in verdicts)
            if categories or failed_open:
                action = max((verdict.action for verdict in verdicts), key=_STRICTNESS.index)
                yield GuardrailNote(action, categories, direction, failed_open)

    # --- housekeeping -----------------------------------------------------------------------------------------------

    def _submit(self, call: StageCall, request: Any, payload: Pending | None = None) -> Pending:
        pending = call.submit(request, payload)
        self._pending.append(pending)
        return pending

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            elapsed = (time.monotonic() - start) * 1000
            self.milliseconds[stage] += elapsed

    def _note_first_token(self) -> None:
        self._first_piece = time.monotonic()
        elapsed = (self._first_piece - self.started) * 1000
        self.milliseconds["first_token"] = elapsed
        labels = {"model": self.job.model, "priority": self.job.priority, **labels_of(self.job)}
        self.stages.metrics.add("baton_time_to_first_token_milliseconds", elapsed, **labels)

    def _note_outcome(self) -> None:
        """Record tokens and output findings, also of an answer that nobody waited for to its end."""
        if not self.choices:
            return
        add = self.stages.metrics.add
        generated = sum(choice.pieces for choice in (self.choices[:1] if self._greedy else self.choices))
        add("baton_tokens_total", float(self.prompt_tokens), model=self.job.model, direction="in")
        add("baton_tokens_total", float(generated), model=self.job.model, direction="out")
        longest = max(choice.pieces for choice in self.choices)
        if longest > 1:  # once per answer: observing each piece would take 18 us of a core per token
            interval = (self._last_piece - self._first_piece) * 1000 / (longest - 1)
            add("baton_inter_token_milliseconds", interval, model=self.job.model)
        for verdict in self._output_verdicts():
            note_verdict(self.stages.metrics, "output", verdict, self.job)
            if self._judging_since:
                facts = {**facts_of(JudgeRequest("output", (), self.job.policy)), **facts_of(verdict)}
                self.stages.traces.past("guardrail", self._span_above, self._judging_since, facts)

    def close(self) -> None:
        """Cancel every call that still works on the job; record the stages' times and what came out."""
        self._note_outcome()
        for pending in self._pending:
            if pending.cancel():
                self.stages.metrics.add("baton_cancels_total", stage=pending.stage)
        lingering = any(pending.abandoned for pending in self._pending)
        for pending in self._pending:
            pending.release(lingering=lingering)
        # The choices refer to this object and it to them: what it holds would stay until a rare garbage collection,
        # and with a payload of 17 MB every request faulted in fresh pages (28 ms of a core).
        self._pending.clear()
        for stage, elapsed in self.milliseconds.items():
            if stage not in {"total", "first_token"}:
                self.stages.metrics.add("baton_stage_milliseconds", elapsed, stage=stage)


def _enforced(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the format that the engine's grammar enforces: none where the caller said ``"strict": false``."""
    if response_format is not None and response_format.get("json_schema", {}).get("strict") is False:
        return None
    return response_format
