"""A fake engine that speaks exactly like ``ray.serve.llm`` does: SSE strings at a fixed rate, errors as items.

Unit tests use :class:`FakeEngine` in process. Benches and placement tests deploy :func:`build_fake_model` as a model
application, so that gateway and engine do not fight for two cores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson

_WORDS = ("Baton", "answers", "with", "passages", "that", "it", "found", "in", "a", "collection.")


class FakeEngine:
    """Streams ``words`` (again from the start when they run out) until ``max_tokens``; one word is one token.

    ``seconds_per_token`` sets the rate. ``fail_after`` raises an engine error after that many pieces (0 = instead of
    the first). ``running`` counts requests at work, ``aborted`` those that were closed before their end;
    ``bodies`` and ``traces`` hold what came with each.
    """

    def __init__(
        self,
        words: Sequence[str] = _WORDS,
        seconds_per_token: float = 0.0,
        fail_after: int | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        self._words = tuple(words)
        self._seconds = seconds_per_token
        self._fail_after = fail_after
        self._error = dict(error or {"message": "engine died", "type": "InternalServerError", "code": 500})
        self.running = 0
        self.aborted = 0
        self.bodies: list[dict[str, Any]] = []
        self.traces: list[Mapping[str, str] | None] = []

    async def generate(
        self, kind: str, body: Mapping[str, Any], trace: Mapping[str, str] | None = None
    ) -> AsyncIterator[list[Any]]:
        """Yield what the engine would for OpenAI's request body."""
        self.bodies.append(dict(body))
        self.traces.append(trace)
        self.running += 1
        finished = False
        try:
            if self._fail_after == 0:
                yield [{"error": self._error}]
                return
            async for item in self._stream(kind, body):
                yield item
            finished = True
        finally:
            self.running -= 1
            self.aborted += not finished and self._fail_after is None

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what an engine tells of its load."""
        return {"running": float(self.running), "waiting": 0.0, "kv_cache": min(1.0, self.running / 100)}

    async def _stream(self, kind: str, body: Mapping[str, Any]) -> AsyncIterator[list[Any]]:
        length = min(int(body["max_tokens"]), len(self._words))
        if body.get("ignore_eos"):
            length = int(body["max_tokens"])
        ended_by = "length" if length == int(body["max_tokens"]) else "stop"
        choices = range(int(body.get("n", 1)))
        start = time.monotonic()
        for position in range(length):
            # By the clock, not from piece to piece: the rate stays what it is however late a piece goes out.
            await asyncio.sleep(start + (position + 1) * self._seconds - time.monotonic())
            if self._fail_after is not None and position >= self._fail_after:
                yield [_event({"error": self._error}), "data: [DONE]\n\n"]
                return
            last = position == length - 1
            word = self._words[position % len(self._words)] + ("" if last else " ")
            for index in choices:
                yield [_event(_chunk(kind, body, index, word, ended_by if last else None))]
        usage = {"prompt_tokens": _prompt_tokens(body), "completion_tokens": length * len(choices)}
        yield [_event({"choices": [], "usage": usage}), "data: [DONE]\n\n"]


def _prompt_tokens(body: Mapping[str, Any]) -> int:
    texts = [str(message.get("content") or "") for message in body.get("messages", ())] or [str(body.get("prompt"))]
    return sum(len(text.split()) for text in texts)


def _chunk(kind: str, body: Mapping[str, Any], index: int, word: str, finish: str | None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": index, "finish_reason": finish}
    if kind == "chat":
        choice["delta"] = {"content": word}
        choice["logprobs"] = {"content": [{"token": word, "logprob": -0.1}]} if body.get("logprobs") else None
    else:
        choice["text"] = word
        choice["logprobs"] = _older_logprobs(word, int(body["logprobs"])) if "logprobs" in body else None
    return {"choices": [choice]}


def _older_logprobs(word: str, likeliest: int) -> dict[str, Any]:
    """Return a completion's parallel lists; like the engine's, they hold the chosen token and ``likeliest`` more."""
    top = {word: -0.1} | {f"other{place}": -2.0 - place for place in range(likeliest)}
    return {"tokens": [word], "token_logprobs": [-0.1], "top_logprobs": [top], "text_offset": [0]}


def _event(payload: Mapping[str, Any]) -> str:
    return f"data: {orjson.dumps(payload).decode()}\n\n"


def build_fake_model(args: dict[str, Any]) -> Any:
    """Build a model application around :class:`FakeEngine`; ``args`` are its arguments. Import path for Serve."""
    from ray import serve

    options = {key: args.pop(key) for key in ("max_ongoing_requests", "max_queued_requests") if key in args}
    deployment = serve.deployment(FakeEngine).options(
        name="generator", ray_actor_options={"num_cpus": 0.1}, **({"max_ongoing_requests": 64} | options)
    )
    return deployment.bind(**args)
