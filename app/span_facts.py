"""What a span says of a stage's messages: numbers, names and outcomes, never a text.

Names under ``gen_ai`` are those of OpenTelemetry's conventions for generative AI; Baton's own stand under ``baton``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from app.jobs import Embedded
from app.messages import (
    AssembleRequest,
    GenerateRequest,
    JudgeRequest,
    PostprocessRequest,
    Prompt,
    Report,
    RetrievalQuery,
    Retrieved,
    Verdict,
)

Facts = Mapping[str, Any]
#: Longest text of a span, where spans may carry texts at all.
_TEXT_CHARS = 8192
_SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed")


def facts_of(message: Any) -> Facts:
    """Return the attributes that a request or a result of a stage gives its span; none for what is not known."""
    read = _READERS.get(type(message))
    return {} if read is None else read(message)


def _judge(request: JudgeRequest) -> Facts:
    return {"baton.guardrail.direction": request.direction, "baton.guardrail.policy": request.policy}


def _verdict(verdict: Verdict) -> Facts:
    categories = sorted({found.category for found in verdict.findings})
    return {
        "baton.guardrail.action": verdict.action,
        "baton.guardrail.categories": categories,
        "baton.guardrail.failed_open": verdict.failed_open,
    }


def _query(query: RetrievalQuery) -> Facts:
    return {
        "db.operation.name": query.mode,
        "baton.retriever.collections": list(query.collections),
        "baton.retriever.top_k": query.top_k,
        "baton.retriever.candidates": query.candidates,
    }


def _retrieved(retrieved: Retrieved) -> Facts:
    facts: dict[str, Any] = {"baton.retriever.passages": retrieved.passages.num_rows}
    if retrieved.passages.num_rows:
        facts["baton.retriever.best_score"] = float(retrieved.passages["score"][0].as_py())
    for part, milliseconds in retrieved.milliseconds.items():
        facts[f"baton.retriever.{part}_milliseconds"] = float(milliseconds)
    return facts


def _assemble(request: AssembleRequest) -> Facts:
    return {"gen_ai.request.model": request.model, "baton.assembler.turns": len(request.messages)}


def _prompt(prompt: Prompt) -> Facts:
    return {
        "baton.assembler.prompt_tokens": prompt.tokens,
        "baton.assembler.cut_passages": prompt.cut_passages,
        "baton.assembler.cut_turns": prompt.cut_turns,
    }


def _generate(request: GenerateRequest) -> Facts:
    facts: dict[str, Any] = {
        "gen_ai.operation.name": "chat" if request.prompt is None else "text_completion",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.choice.count": request.n,
    }
    known = {name: request.sampling.get(name) for name in _SAMPLING}
    return facts | {f"gen_ai.request.{name}": value for name, value in known.items() if value is not None}


def _postprocess(request: PostprocessRequest) -> Facts:
    return {"baton.postprocessor.choices": len(request.choices)}


def _report(report: Report) -> Facts:
    best = report.choices[0] if report.choices else None
    known = {
        "baton.postprocessor.grounding": best and best.grounding,
        "baton.postprocessor.confidence": best and best.confidence,
        "baton.postprocessor.citations": best and len(best.citations),
        "baton.postprocessor.json": best and best.json and str(best.json["status"]),
    }
    return {name: value for name, value in known.items() if value is not None}


def _embedded(embedded: Embedded) -> Facts:
    return {"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": embedded.tokens}


def question_of(request: GenerateRequest) -> str:
    """Return what the engine is asked, as ``gen_ai.input.messages`` has it: for spans that may carry texts alone."""
    if request.prompt is not None:
        return _messages([{"role": "user", "content": request.prompt}])
    return _messages(request.messages)


def answers_of(texts: list[str]) -> str:
    """Return the answers as ``gen_ai.output.messages`` has them: for spans that may carry texts alone."""
    return _messages([{"role": "assistant", "content": text} for text in texts])


def _messages(messages: Any) -> str:
    parts = [{"role": turn["role"], "parts": [{"type": "text", "content": _text(turn)}]} for turn in messages]
    return orjson.dumps(parts).decode()[:_TEXT_CHARS]


def _text(turn: Mapping[str, Any]) -> str:
    """Return a turn's text, without its images."""
    content = turn.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


_READERS: Mapping[type, Callable[[Any], Facts]] = {
    JudgeRequest: _judge,
    Verdict: _verdict,
    RetrievalQuery: _query,
    Retrieved: _retrieved,
    AssembleRequest: _assemble,
    Prompt: _prompt,
    GenerateRequest: _generate,
    PostprocessRequest: _postprocess,
    Report: _report,
    Embedded: _embedded,
}
