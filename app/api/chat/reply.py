"""The replies of ``/v1/chat/completions``, plain and streamed, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.api.replies import Answer, CollectedChoice, baton_body, reply_head, usage_body
from app.jobs import ChatJob, Finished
from app.messages import Delta


def chat_body(answer: Answer, job: ChatJob) -> dict[str, Any]:
    """Return a plain reply."""
    return {
        **reply_head("chatcmpl", "chat.completion", job.model),
        "choices": [_choice(index, choice, job) for index, choice in enumerate(answer.choices)],
        "usage": usage_body(answer.finished.usage),
        "baton": baton_body(answer.finished, job),
    }


def _choice(index: int, choice: CollectedChoice, job: ChatJob) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.tool_calls:
        message["content"] = choice.text or None
        message["tool_calls"] = [call for _, call in sorted(choice.tool_calls.items())]
    return {
        "index": index,
        "message": message,
        "logprobs": _logprobs(choice.logprobs) if job.logprobs else None,
        "finish_reason": choice.finish_reason,
    }


def _logprobs(tokens: Any) -> dict[str, Any]:
    return {"content": [dict(token) for token in tokens], "refusal": None}


class ChatChunks:
    """Writes ``chat.completion.chunk`` objects."""

    def __init__(self, job: ChatJob) -> None:
        self._head = reply_head("chatcmpl", "chat.completion.chunk", job.model)
        self._with_logprobs = job.logprobs

    def opening(self, n: int) -> Iterator[dict[str, Any]]:
        """Yield the role of each choice."""
        for index in range(n):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def piece(self, delta: Delta) -> dict[str, Any] | None:
        """Return the chunk for text, tool calls and log probabilities; None when there are none."""
        found: dict[str, Any] = {}
        if delta.content:
            found["content"] = delta.content
        if delta.tool_calls:
            found["tool_calls"] = [dict(call) for call in delta.tool_calls]
        logprobs = _logprobs(delta.logprobs) if self._with_logprobs and delta.logprobs else None
        return self._chunk(delta.index, found, logprobs) if found or logprobs else None

    def finish(self, index: int, reason: str) -> dict[str, Any]:
        """Return the chunk that ends one choice."""
        return self._chunk(index, {}, reason=reason)

    def closing_fields(self, finished: Finished, baton: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the extension field."""
        return {"baton": baton}

    def usage(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the chunk with no choices and the token counts."""
        return {**self._head, "choices": [], "usage": usage}

    def _chunk(
        self, index: int, delta: Mapping[str, Any], logprobs: Any = None, reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head, "choices": [choice]}
