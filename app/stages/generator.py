"""The generator: asks an engine for an answer and yields it piece by piece.

The engine (vLLM behind ``ray.serve.llm``) answers in three shapes: server-sent-event strings, error objects and error
events in mid-stream. This module is the one place that turns them into deltas and into our errors.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from itertools import chain, repeat
from typing import Any, Literal, Protocol

import orjson

from app.answers.schema_features import refusal
from app.errors import (
    BatonError,
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    SchemaRejected,
    StageUnavailable,
    engine_died,
)
from app.jobs import base_model
from app.messages import Delta, GenerateRequest, Usage

STAGE = "generator"
Kind = Literal["chat", "completions"]
_DATA = "data: "
_DONE = "[DONE]"


class Engine(Protocol):
    """One model's engine. Items are SSE strings, ``{"error": …}`` mappings, or lists of either."""

    def generate(
        self, kind: Kind, body: Mapping[str, Any], trace: Mapping[str, str] | None = None
    ) -> AsyncIterator[Any]:
        """Send OpenAI's request body; closing the iterator aborts the request in the engine.

        ``trace`` are W3C headers of the trace that the request belongs to.
        """
        ...


class Generator:
    """Runs :class:`GenerateRequest` on the engine of its model."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = engines

    async def run(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Yield deltas; the one with ``usage`` set is the last and has index -1.

        Raises errors of ``app.errors``, before the first delta wherever the engine allows it.
        """
        engine = self._engines.get(base_model(request.model))
        if engine is None:
            raise ModelNotFound(f"The model {request.model!r} is not served here.", STAGE, "model")
        kind: Kind = "chat" if request.prompt is None else "completions"
        async with aclosing(_flatten(engine.generate(kind, _body(request), request.trace))) as items:
            async for item in items:
                for delta in _deltas(item, kind, request.response_format):
                    yield delta


async def _flatten(stream: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    try:
        async for item in stream:
            for part in item if isinstance(item, list) else (item,):
                yield part
    finally:
        await stream.aclose()  # type: ignore[attr-defined]


def _body(request: GenerateRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        **request.sampling,
        "model": request.model,
        "request_id": request.request_id,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": request.max_tokens,
        "n": request.n,
        "priority": request.priority,
    }
    if request.response_format is not None:
        body["response_format"] = request.response_format
    if request.prompt is not None:
        body |= {"prompt": request.prompt} | ({"logprobs": request.top_logprobs} if request.logprobs else {})
        return body
    body["messages"] = list(request.messages)
    if request.logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.tools:
        body["tools"] = list(request.tools)
        body["tool_choice"] = request.tool_choice or "auto"
    return body


def _deltas(item: Any, kind: Kind, response_format: Mapping[str, Any] | None) -> list[Delta]:
    payload = _payload(item)
    if payload is None:
        return []
    if "error" in payload:
        raise engine_error(payload["error"], kind, response_format)
    read = _chat_delta if kind == "chat" else _completion_delta
    deltas = [read(choice) for choice in payload.get("choices", ())]
    if payload.get("usage") and not payload.get("choices"):
        usage = payload["usage"]
        deltas.append(
            Delta(-1, usage=Usage(int(usage["prompt_tokens"]), int(usage.get("completion_tokens") or 0))),
        )
    return deltas


def _payload(item: Any) -> Mapping[str, Any] | None:
    if isinstance(item, Mapping):
        return item
    text = str(item).strip()
    if not text.startswith(_DATA.strip()):
        return None
    data = text[len(_DATA) - 1 :].strip()
    return None if data == _DONE else orjson.loads(data)


def _chat_delta(choice: Mapping[str, Any]) -> Delta:
    delta = choice.get("delta") or {}
    return Delta(
        index=int(choice["index"]),
        content=delta.get("content") or "",
        tool_calls=tuple(delta.get("tool_calls") or ()),
        logprobs=tuple((choice.get("logprobs") or {}).get("content") or ()),
        finish_reason=choice.get("finish_reason"),
    )


def _completion_delta(choice: Mapping[str, Any]) -> Delta:
    return Delta(
        index=int(choice["index"]),
        content=choice.get("text") or "",
        logprobs=tuple(_older_logprobs(choice.get("logprobs") or {})),
        finish_reason=choice.get("finish_reason"),
    )


def _older_logprobs(logprobs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield chat's form of the parallel lists that completions have."""
    tokens, values = logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ()
    tops = chain(logprobs.get("top_logprobs") or (), repeat(None))
    for token, value, top in zip(tokens, values, tops, strict=False):
        likeliest = [{"token": name, "logprob": weight} for name, weight in (top or {}).items()]
        yield {"token": token, "logprob": value or 0.0, "top_logprobs": likeliest}


def engine_error(
    error: Mapping[str, Any], kind: Kind = "chat", response_format: Mapping[str, Any] | None = None
) -> BatonError:
    """Translate the engine's error object (``message``, ``code`` = HTTP status) into ours."""
    message = str(error.get("message") or "The engine gave no reason.")
    status = error.get("code")
    lowered = message.lower()
    if any(sign in lowered for sign in _SIGNS_OF_A_SCHEMA):
        return _no_grammar(message, response_format)
    if "context length" in lowered or "input_tokens" in str(error.get("param")) or "maximum model length" in lowered:
        return _too_long(message, kind)
    if status == 404:
        return ModelNotFound(_first_line(message), STAGE, "model")
    if status in {400, 422}:
        return InvalidRequest(_first_line(message), STAGE, error.get("param"))
    if message.startswith(_ENGINE_IS_DEAD):
        return engine_died(STAGE)
    if status == 503:
        return StageUnavailable("The engine cannot take requests at present.", STAGE, None, 5)
    return EngineFailed("The engine gave up on this request: send it again.", STAGE)


def _no_grammar(message: str, response_format: Mapping[str, Any] | None) -> SchemaRejected:
    """Return our sentence: with the place of a feature that the compiler does not know, else with its reason."""
    schema = ((response_format or {}).get("json_schema") or {}).get("schema")
    known = refusal(schema)
    if known is None and (reason := _REASON.match(_first_line(message))) and "check failed" not in message.lower():
        known = f"{_NO_GRAMMAR} The reason: {reason[1].strip().rstrip('.')}."
    return SchemaRejected(known or _NO_GRAMMAR, STAGE, "response_format")


def says_that_the_engine_died(item: Any) -> bool:
    """Tell whether an engine's item is the error of one whose process ended, while its replica still takes calls."""
    first = item[0] if isinstance(item, list) and item else item
    error = first.get("error") if isinstance(first, Mapping) else None
    return error is not None and str(error.get("message")).startswith(_ENGINE_IS_DEAD)


def _too_long(message: str, kind: Kind) -> ContextLengthExceeded:
    """Return our sentence with the engine's numbers, as far as it tells any."""
    field = "messages" if kind == "chat" else "prompt"
    window, taken = _WINDOW.search(message), _TAKEN.search(message)
    size = f"The model's context window is {window[1]} tokens" if window else "The model's context window is too small"
    has = "takes" if kind == "completions" else "take"
    used = f"; the {field} {has} {taken[1]}" if taken else ""
    return ContextLengthExceeded(f"{size}{used}. Shorten the {field} or lower max_tokens.", STAGE, field)


#: How vLLM tells the window and the length of what it was sent.
_WINDOW = re.compile(r"maximum (?:context|model) length (?:is|of) (\d+)")
_TAKEN = re.compile(r"((?:at least )?\d+ (?:input tokens|characters))")
#: Said in place of a failed assertion of the grammar compiler's.
_NO_GRAMMAR = "The engine cannot make a grammar of this schema: simplify its bounds, patterns and references."
_SIGNS_OF_A_SCHEMA = ("features not supported", "check failed:", "grammar", "json schema", "json_schema")
#: What the compiler says behind vLLM's words, without where in its own grammar it was.
_REASON = re.compile(r"Failed to \w+ .*?grammar: (?:(?:EBNF parser|Regex parsing) error at [^:]*: )?(.+)", re.DOTALL)
#: How vLLM begins to say that its process is gone.
_ENGINE_IS_DEAD = "EngineCore encountered an issue"
#: Where the engine's grammar compiler was built, and when it spoke: nothing that a caller could use.
_COMPILER_PREFIX = re.compile(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: ")


def _first_line(message: str) -> str:
    line = message.splitlines()[0] if message else ""
    return _COMPILER_PREFIX.sub("", line)[:300]
