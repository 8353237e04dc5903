"""The replies of ``/v1/completions``, plain and streamed, in OpenAI's older shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from app.api.replies import Answer, baton_body, reply_head, usage_body
from app.jobs import ChatJob, Finished
from app.messages import Delta


def completion_body(answer: Answer, job: ChatJob) -> dict[str, Any]:
    """Return a plain reply."""
    return {
        **reply_head("cmpl", "text_completion", job.model),
        "choices": [
            _choice(index, choice.text, choice.logprobs if job.logprobs else None, choice.finish_reason)
            for index, choice in enumerate(answer.choices)
        ],
        "usage": usage_body(answer.finished.usage),
        "baton": baton_body(answer.finished, job),
    }


def _choice(
    index: int, text: str, tokens: Sequence[Mapping[str, Any]] | None = None, reason: str | None = None
) -> dict[str, Any]:
    logprobs = None if tokens is None else _logprobs(tokens)
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _logprobs(tokens: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Turn chat's list of tokens into the older parallel lists; offsets count from the start of this piece."""
    texts = [str(token["token"]) for token in tokens]
    offsets = list(accumulate(map(len, texts), initial=0))[:-1]
    return {
        "tokens": texts,
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [{top["token"]: top["logprob"] for top in token.get("top_logprobs", ())} for token in tokens],
        "text_offset": offsets,
    }


class CompletionChunks:
    """Writes streamed ``text_completion`` objects."""

    def __init__(self, job: ChatJob) -> None:
        self._head = reply_head("cmpl", "text_completion", job.model)
        self._with_logprobs = job.logprobs

    def opening(self, n: int) -> Iterator[dict[str, Any]]:
        """Yield an empty piece of each choice."""
        for index in range(n):
            yield self._chunk(_choice(index, ""))

    def piece(self, delta: Delta) -> dict[str, Any] | None:
        """Return the chunk for text and log probabilities; None when there are none."""
        tokens = delta.logprobs if self._with_logprobs and delta.logprobs else None
        return self._chunk(_choice(delta.index, delta.content, tokens)) if delta.content or tokens else None

    def finish(self, index: int, reason: str) -> dict[str, Any]:
        """Return the chunk that ends one choice."""
        return self._chunk(_choice(index, "", reason=reason))

    def closing_fields(self, finished: Finished, baton: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the extension field."""
        return {"baton": baton}

    def usage(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the chunk with no choices and the token counts."""
        return {**self._head, "choices": [], "usage": usage}

    def _chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [choice]}
