"""What travels between stages: frozen dataclasses, small enough to go by value.

The one big payload, :class:`Retrieved`, goes by reference through the node's object store (``app/handles.py``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

Role = Literal["system", "user", "assistant", "tool"]
Action = Literal["allow", "flag", "redact", "block"]
Direction = Literal["input", "passage", "output"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of an assistant turn; ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; text parts are already joined into ``content``.

    ``images`` are data URIs, checked already; the engine gets each as a part of its own, in front of the text.
    """

    role: Role
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[str, ...] = field(default=(), repr=False)


# --- guardrail ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """Texts for the guardrail.

    ``policy`` names one of the configured policies. ``context`` (output streams only) is text that was already
    released just before ``texts[0]``: rules may look at it, findings never lie wholly inside it.
    ``final`` is false while a stream goes on.
    """

    direction: Direction
    texts: tuple[str, ...]
    policy: str = "default"
    context: str = ""
    final: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """One match: rule and category, never the text. ``start`` and ``end`` index characters of the original text."""

    rule: str
    category: str
    action: Action
    text_index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guardrail's answer.

    ``action`` is the strictest of the findings. ``texts`` equals the request's texts with redactions applied.
    ``safe_chars`` (streams) is how many leading characters of the *request's* ``texts[0]`` may be released now, with
    ``texts[0]`` of the verdict holding the redacted form of exactly those characters.
    ``context_chars`` (streams) is how many characters before what is then unreleased the next request needs as
    ``context``. ``failed_open`` tells that a rule could not be evaluated and the policy let the text pass.
    """

    action: Action
    findings: tuple[Finding, ...]
    texts: tuple[str, ...]
    safe_chars: int = 0
    failed_open: bool = False
    context_chars: int = 0


# --- retriever ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """What to look for. ``filter`` is the typed filter language of ``app/stores/filters.py``, still as JSON.

    ``tenant`` is whose documents are searched, beside all filters; empty for those of all. ``images`` are data URIs
    that are part of the question, for an embedder that reads images.
    """

    text: str
    collections: tuple[str, ...]
    top_k: int
    candidates: int
    filter: Mapping[str, Any] | None = None
    mode: Literal["hybrid", "vector", "text"] = "hybrid"
    min_score: float | None = None
    late_interaction: bool = False
    tenant: str = ""
    images: tuple[str, ...] = field(default=(), repr=False)


#: Columns of ``Retrieved.passages``; rows are in rank order. ``token_embeddings`` holds one row of the embedder's
#: dimension per token of the passage: ``list<fixed_shape_tensor<float32>[dimension]>``, never padded.
PASSAGE_COLUMNS = ("id", "text", "score", "source", "collection", "metadata", "token_embeddings")


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The retriever's result, the pipeline's one big payload.

    ``passages`` has the columns of ``PASSAGE_COLUMNS`` and up to ``candidates`` rows, of which the first ``top_k`` are
    meant for the prompt. ``milliseconds`` maps a part of the work (``embed``, ``search``) to its time, and ``made``
    is the ``time.time()`` at which it was done.
    """

    passages: pa.Table
    top_k: int
    question_truncated: bool = False
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    made: float = field(default_factory=time.time)


# --- assembler ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AssembleRequest:
    """What the prompt is made of.

    ``max_tokens`` is the caller's limit, or None when the answer may take what is left of the window.
    ``blocked_rows`` are rows of the passages that the guardrail refused; ``passage_texts`` overrides the text of the
    other rows where the guardrail redacted them (row → text).
    """

    model: str
    system_prompt: str
    messages: tuple[Message, ...]
    max_tokens: int | None
    tools: tuple[Mapping[str, Any], ...] = ()
    blocked_rows: tuple[int, ...] = ()
    passage_texts: Mapping[int, str] = field(default_factory=dict)
    retrieval: bool = False
    context_tokens: int | None = None
    """Tokens that prompt and answer may take together, within the model's window; None for all of it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine gets. ``rows[i]`` is the row of the passages that carries citation mark ``[i+1]``.

    ``cut_passages`` and ``cut_turns`` count what did not fit; ``max_tokens`` is what is left for the answer.
    """

    messages: tuple[Mapping[str, Any], ...]
    tokens: int
    max_tokens: int
    rows: tuple[int, ...] = ()
    cut_passages: int = 0
    cut_turns: int = 0


# --- generator ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One call of the engine. ``sampling`` holds OpenAI's and vLLM's own names, already within the stated caps."""

    model: str
    request_id: str
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str | None = None
    max_tokens: int = 16
    n: int = 1
    sampling: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    response_format: Mapping[str, Any] | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    priority: int = 0
    """The engine's scheduler takes lower numbers first (vLLM's ``scheduling_policy: priority``)."""
    trace: Mapping[str, str] | None = None
    """The trace that the request belongs to, as W3C headers; None where it is not traced."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the engine reports them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece of one choice. ``tool_calls`` and ``logprobs`` are OpenAI's JSON for the piece."""

    index: int
    content: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    logprobs: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None


# --- postprocessor --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished answer. ``token_logprobs`` are natural logarithms, one per token, or empty when not known."""

    index: int
    text: str
    finish_reason: str
    token_logprobs: tuple[float, ...] = ()
    has_tool_calls: bool = False


@dataclass(frozen=True, slots=True)
class PostprocessRequest:
    """``rows`` are the passages' rows behind marks [1], [2], …; ``response_format`` is OpenAI's, or None."""

    choices: tuple[Choice, ...]
    rows: tuple[int, ...] = ()
    response_format: Mapping[str, Any] | None = None
    keep: int = 1
    """How many choices the caller gets; more choices than that are ranked and the best kept."""


@dataclass(frozen=True, slots=True)
class Citation:
    """One passage that a sentence of the answer rests on. ``start`` and ``end`` index characters of the answer."""

    mark: int
    id: str
    collection: str
    source: str
    score: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class UnsupportedNumber:
    """A number of the answer that stands in no passage: characters ``start`` to ``end``.

    ``path`` is the JSON pointer of the value that holds it, None in an answer that is plain text.
    """

    number: str
    start: int
    end: int
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ChoiceReport:
    """What is known about one answer. ``grounding`` and ``confidence`` lie in [0, 1]; None = not applicable.

    ``json`` is None without a response format, else ``{"status": "valid" | "repaired" | "invalid" | "truncated",
    "path": str | None, "message": str | None, "repaired": str | None, "repairs": [str]}``.
    """

    index: int
    citations: tuple[Citation, ...] = ()
    grounding: float | None = None
    confidence: float | None = None
    json: Mapping[str, Any] | None = None
    unsupported_numbers: tuple[UnsupportedNumber, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The postprocessor's result, best choice first."""

    choices: tuple[ChoiceReport, ...]
