"""The response cache, the example of a hook: answers to deterministic requests are kept and given again.

It keeps what the engine wrote, so the output guardrail judges an answer anew each time it goes out. One replica's own,
least recently used first out, bounded by answers and by bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from app.apps.engine_loop.contract import WHOLE, Answer, LoopRequest, StepOutput, TensorPrompt
from app.apps.engine_loop.hooks import NoHook
from app.config.engine_loop import ResponseCacheConfig

_BYTES_PER_TOKEN = 8


def cache_key(model: str, tenant: str, prompt: Sequence[int] | TensorPrompt, sampling: Mapping[str, Any]) -> bytes:
    """Return what tells one deterministic request from another; empty where the answer is left to chance.

    Takes a hash of the whole prompt, for a tensor at about a gigabyte a second.
    """
    if sampling.get("temperature") != 0 and sampling.get("seed") is None:
        return b""
    whole = hashlib.sha256()
    for part in (model, tenant, json.dumps(dict(sampling), sort_keys=True)):
        text = part.encode("utf-8", "surrogatepass")
        whole.update(len(text).to_bytes(8, "big") + text)
    if isinstance(prompt, TensorPrompt):
        whole.update(f"tensor {prompt.dtype} {prompt.rows.shape}".encode())
        whole.update(prompt.rows.data)
    else:
        whole.update(b"tokens " + b"".join(token.to_bytes(4, "big") for token in prompt))
    return whole.digest()


class ResponseCache(NoHook):
    """Keeps whole answers by the key of their request."""

    name = "cache"

    def __init__(self, config: ResponseCacheConfig) -> None:
        self._config = config
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self._bytes = 0
        self._open: dict[str, tuple[bytes, list[StepOutput]]] = {}
        self._hits = 0
        self._misses = 0

    def on_add(self, request: LoopRequest) -> Answer | None:
        """Return the kept answer, or begin to listen to the one that the engine will write."""
        if not request.cache_key:
            return None
        found = self._answers.get(request.cache_key)
        if found is not None:
            self._hits += 1
            self._answers.move_to_end(request.cache_key)
            return found
        self._misses += 1
        self._open[request.id] = (request.cache_key, [])
        return None

    def after_step(self, outputs: Sequence[StepOutput]) -> None:
        """Collect pieces, and keep answers that ended by themselves."""
        for output in outputs:
            listening = self._open.get(output.id)
            if listening is None:
                continue
            key, pieces = listening
            pieces.append(output)
            if output.finish_reason in WHOLE:
                text = "".join(piece.text for piece in pieces)
                tokens = tuple(token for piece in pieces for token in piece.tokens)
                self._keep(key, Answer(text, tokens, output.finish_reason))

    def on_end(self, request: LoopRequest) -> None:
        """Forget the pieces; those of an answer that was broken off with them."""
        self._open.pop(request.id, None)

    def _keep(self, key: bytes, answer: Answer) -> None:
        if _size(answer) > self._config.max_bytes:
            return
        old = self._answers.pop(key, None)
        self._bytes += _size(answer) - (_size(old) if old else 0)
        self._answers[key] = answer
        while len(self._answers) > self._config.max_answers or self._bytes > self._config.max_bytes:
            _, gone = self._answers.popitem(last=False)
            self._bytes -= _size(gone)

    def report(self) -> dict[str, float]:
        """Return ``hits``, ``misses``, ``answers`` and ``bytes``."""
        return {"hits": self._hits, "misses": self._misses, "answers": len(self._answers), "bytes": self._bytes}


def _size(answer: Answer) -> int:
    return len(answer.text.encode("utf-8", "surrogatepass")) + _BYTES_PER_TOKEN * len(answer.tokens)
