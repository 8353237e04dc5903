"""What the API asks of the pipeline, and what the pipeline tells the API.

The API (``app/api``) turns HTTP into a job and events into HTTP; the pipeline (``app/pipeline.py``) knows nothing of
HTTP. Names of models and profiles are already resolved, limits already checked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from app.messages import ChoiceReport, Delta, Message, RetrievalQuery, Usage

#: Ends a variant's name in metrics of answers that nobody got; no name of the configuration has such a sign.
SHADOW_SUFFIX = "~shadow"


def base_model(model: str) -> str:
    """Return the model of a LoRA adapter, whose name is ``<model>:<adapter>``; of any other name the name itself."""
    return model.partition(":")[0]


@dataclass(frozen=True, slots=True)
class ChatJob:
    """One request for an answer.

    ``prompt`` set = a bare completion: both guardrails, no template, no retrieval. ``retrieval`` None = no retrieval;
    its ``text`` is the last user message. ``n_candidates`` ≥ ``n`` answers are generated and the best ``n`` returned.
    ``deadline`` is a ``time.monotonic()`` instant. ``return_contexts`` asks for the passages' text in the reply.
    ``priority`` is the name of the job's class, ``engine_priority`` what the engine's scheduler is told of it.
    """

    request_id: str
    model: str
    profile: str
    system_prompt: str
    policy: str
    deadline: float
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    retrieval: RetrievalQuery | None = None
    max_tokens: int | None = None
    n: int = 1
    n_candidates: int = 1
    sampling: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    response_format: Mapping[str, Any] | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    return_contexts: bool = False
    own_deadline: bool = False
    """Whether the caller asked for a deadline before the default one."""
    priority: str = "interactive"
    engine_priority: int = 0
    context_tokens: int | None = None
    """Tokens that prompt and answer may take together; None for the model's window."""
    variant: str = ""
    """The variant that answers, or the model where a rule chose one; empty without routing."""
    way: str = ""
    """How the variant came to answer (``app/routing/routes.py: Way``)."""
    shadows: tuple[Shadow, ...] = ()
    """Copies of the job for other variants."""
    question_field: Literal["messages", "prompt", "query"] = "messages"
    """Where the question stood in the request, for errors that name its field."""

    @property
    def engine(self) -> str:
        """The model without the adapter that its engine is asked to load."""
        return base_model(self.model)

    @property
    def variant_label(self) -> str:
        """The variant as metrics name it: answers in the shadow are kept apart from those that somebody got."""
        return f"{self.variant}{SHADOW_SUFFIX}" if self.way == "shadow" else self.variant


@dataclass(frozen=True, slots=True)
class Shadow:
    """A copy of a job for another variant; ``job`` is None where that variant refuses such a request.

    ``seconds`` is the time that it may take, from when it begins.
    """

    variant: str
    profile: str
    job: ChatJob | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Started:
    """The engine has answered with its first piece: from here on the reply is a 200."""

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class GuardrailNote:
    """What the guardrail did, without the text: ``direction`` → category → count, by strictest action."""

    action: Literal["allow", "flag", "redact", "block"]
    categories: Mapping[str, int]
    direction: Literal["input", "passage", "output"]
    failed_open: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event. ``choices`` are best first; ``stages`` maps a stage's name to milliseconds.

    ``contexts`` (when asked for): ``{"id", "collection", "source", "score", "text", "mark" | None}`` per passage.
    ``flags`` are facts such as ``without_context`` (retrieval found nothing) or ``question_truncated``.
    """

    choices: tuple[ChoiceReport, ...]
    usage: Usage
    stages: Mapping[str, float]
    guardrail: tuple[GuardrailNote, ...] = ()
    contexts: tuple[Mapping[str, Any], ...] | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)


ChatEvent = Started | Delta | Finished


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found. ``passages``: ``{"id", "collection", "source", "score", "text"}`` each, best first."""

    passages: tuple[Mapping[str, Any], ...]
    stages: Mapping[str, float]
    guardrail: tuple[GuardrailNote, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """Outcome of an upsert: counts of documents and passages, and of documents that were already stored unchanged."""

    documents: int
    passages: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """Texts as vectors: float32 ``(texts, dimension)``, L2-normalised, and the tokens that the embedder read."""

    vectors: npt.NDArray[np.float32]
    tokens: int


class PipelinePort(Protocol):
    """The pipeline as the API sees it. Every method raises errors of ``app.errors`` only."""

    def chat(self, job: ChatJob) -> AsyncIterator[ChatEvent]:
        """Answer a job: ``Started``, then deltas (already judged), then ``Finished``.

        An error raised before ``Started`` becomes an HTTP status; after it, one error event.
        Closing the iterator cancels every stage that works on the job.
        """
        ...

    async def retrieve(self, job: ChatJob) -> Found:
        """Search as for the job's answer: judge the question, search, judge the passages. Its model is not asked."""
        ...

    def busy(self, model: str) -> float | None:
        """Return how much of what a model's engine works on at once is taken, over 1 where jobs wait; None: unknown."""
        ...

    async def embed(self, texts: Sequence[str], policy: str, deadline: float) -> Embedded:
        """Judge and embed texts as queries. Raises ContextLengthExceeded for a text over the embedder's window."""
        ...

    # ``tenant``: whose documents are meant, and whose they become; empty: those of all, and nobody's.

    async def list_collections(self, tenant: str = "") -> list[dict[str, Any]]:
        """Return ``{"name", "documents", "passages", "dimension"}`` per collection that the tenant has documents in."""
        ...

    async def delete_collection(self, name: str, tenant: str = "") -> None:
        """Drop a collection; of a tenant's, its documents in it. Raises CollectionNotFound."""
        ...

    async def delete_documents(self, name: str, ids: Sequence[str], tenant: str = "") -> int:
        """Delete documents by id; returns how many were there."""
        ...

    async def upsert_documents(
        self, name: str, documents: Sequence[Mapping[str, Any]], tenant: str = ""
    ) -> DocumentResult:
        """Chunk, embed and store ``{"id"?, "text", "source"?, "metadata"?}`` documents, atomically for readers."""
        ...

    async def readiness(self) -> dict[str, str]:
        """Return stage or model name → ``"ready"`` or a sentence that says what is missing."""
        ...
