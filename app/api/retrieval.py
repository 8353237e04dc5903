"""The retrieval query of a request: its ``rag`` field over the profile's defaults, within the limits."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.fields import RagFields
from app.blank import is_blank
from app.config.gateway import LimitsConfig
from app.config.profile import RetrievalDefaults
from app.errors import InvalidRequest
from app.messages import Message, RetrievalQuery
from app.stores.filters import parse_filter


def retrieval_query(
    rag: RagFields | None, defaults: RetrievalDefaults, messages: Sequence[Message], limits: LimitsConfig
) -> RetrievalQuery | None:
    """Return what to look for, or None for no retrieval.

    Naming a collection turns retrieval on; ``enabled: false`` turns it off. Other ``rag`` fields where retrieval is off
    are refused, not passed over.
    """
    rag = rag or RagFields()
    collections = _collections(rag, defaults, limits)
    if rag.enabled is False or not (defaults.enabled or rag.enabled or _names_collection(rag)):
        if rag.enabled is None and rag.model_dump(exclude_none=True):
            raise InvalidRequest("This profile does not retrieve by default: name rag.collection.", param="rag")
        return None
    if not collections:
        raise InvalidRequest("No collection to search: name rag.collection.", param="rag.collection")
    parse_filter(rag.filter)
    top_k = _capped("top_k", rag.top_k, defaults.top_k, limits.max_top_k)
    candidates = _capped("candidates", rag.candidates, max(defaults.candidates, top_k), limits.max_candidates)
    if candidates < top_k:
        raise InvalidRequest("rag.candidates must not be smaller than rag.top_k.", param="rag.candidates")
    question = _question(messages)
    return RetrievalQuery(
        text=question.content,
        images=question.images,
        collections=collections,
        top_k=top_k,
        candidates=candidates,
        filter=defaults.filter if rag.filter is None else rag.filter,
        mode=rag.mode or defaults.mode,
        min_score=defaults.min_score if rag.min_score is None else rag.min_score,
        late_interaction=defaults.late_interaction if rag.late_interaction is None else rag.late_interaction,
    )


def _names_collection(rag: RagFields) -> bool:
    return rag.collection is not None or rag.collections is not None


def _collections(rag: RagFields, defaults: RetrievalDefaults, limits: LimitsConfig) -> tuple[str, ...]:
    if rag.collection is not None and rag.collections is not None:
        raise InvalidRequest("Name either rag.collection or rag.collections.", param="rag.collections")
    named = [rag.collection] if rag.collection is not None else rag.collections
    if named is not None and len(named) > limits.max_collections:
        raise InvalidRequest(
            f"rag.collections may name {limits.max_collections} collections at most.", param="rag.collections"
        )
    return defaults.collections if named is None else tuple(dict.fromkeys(named))


def _capped(field: str, asked: int | None, default: int, limit: int) -> int:
    value = default if asked is None else asked
    if value > limit:
        raise InvalidRequest(f"rag.{field} is over the limit of {limit}.", param=f"rag.{field}")
    return value


def _question(messages: Sequence[Message]) -> Message:
    question = next((turn for turn in reversed(messages) if turn.role == "user"), None)
    if question is None or is_blank(question.content):
        raise InvalidRequest("Retrieval needs a question: the last user message is missing or blank.", param="messages")
    return question
