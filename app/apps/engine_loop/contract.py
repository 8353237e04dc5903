"""What goes through the loop: requests, what a step makes of them, and the engine that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

#: The stage's name in errors, metrics and logs.
STAGE = "engine_loop"
#: How answers end by themselves; any other reason is an answer that was broken off.
WHOLE = frozenset({"stop", "length"})


@dataclass(frozen=True, slots=True)
class TensorPrompt:
    """A prompt as rows of the model's input embedding.

    ``rows`` has the shape (tokens, hidden size) and may be read-only; ``dtype`` is torch's name of its type, since
    numpy has none for bfloat16: such rows come as ``uint16``. Nobody writes to it.
    """

    rows: Any
    dtype: str


@dataclass(frozen=True, slots=True)
class LoopRequest:
    """One request, ready for the engine.

    ``tokens`` are the prompt's token ids, empty where only the ``tensor`` is known. ``sampling`` holds vLLM's sampling
    parameters. ``tenant`` keeps prefix cache and response cache apart. ``cache_key`` is empty where the answer must not
    come from the response cache nor go there.
    """

    id: str
    tokens: tuple[int, ...]
    sampling: Mapping[str, Any] = field(default_factory=dict)
    tensor: TensorPrompt | None = None
    tenant: str = ""
    cache_key: bytes = b""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.tokens) if self.tensor is None else len(self.tensor.rows)


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step added to one answer; ``finish_reason`` is there at its end.

    ``cached``: no step made it, a hook gave it.
    """

    id: str
    text: str
    tokens: tuple[int, ...]
    finish_reason: str | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: str


class StepEngine(Protocol):
    """An engine that works in steps. All methods are called by one thread, the one that made it."""

    #: Whether a prompt's tensor stays in this process until the engine reads it.
    in_process: bool

    def add(self, request: LoopRequest) -> None:
        """Take a request. Raises :class:`app.errors.InvalidRequest`; anything else it raises is the engine's end."""
        ...

    def step(self) -> Sequence[StepOutput]:
        """Compute the next tokens of all requests at work. What it raises is the engine's end."""
        ...

    def abort(self, ids: Sequence[str]) -> None:
        """Drop requests; one that is not there is no fault."""
        ...

    def unfinished(self) -> int:
        """Return how many requests the engine holds."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
