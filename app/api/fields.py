"""Request fields that several endpoints share. Unknown fields, loose types, NaN and infinity are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.config.profile import CollectionName, Fraction, SamplingDefaults
from app.errors import bounded

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
_INT64 = 2**63
_TEXT_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_IMAGE_PART = {
    "type": "object",
    "properties": {
        "type": {"const": "image_url"},
        "image_url": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    },
    "required": ["type", "image_url"],
}
_PART = {"anyOf": [_TEXT_PART, _IMAGE_PART]}


class StrictModel(BaseModel):
    """The base of every request body."""

    model_config = STRICT


def join_parts(content: Any) -> Any:
    """Return a content-part list as one string.

    Parts are joined with nothing between them, so that a word split over two parts reaches guardrail and model whole.
    """
    if not isinstance(content, list):
        return content
    if not content:
        raise ValueError("the list of content parts is empty")
    return "".join(_part_text(part) for part in content)


def split_parts(content: Any) -> tuple[Any, tuple[str, ...]]:
    """Return content without its image parts, and the images' addresses. Raises ValueError for a malformed part."""
    if not isinstance(content, list):
        return content, ()
    texts: list[Any] = []
    images: list[Any] = []
    for part in content:
        is_image = isinstance(part, dict) and part.get("type") == "image_url"
        (images if is_image else texts).append(part)
    return (texts if texts or not images else ""), tuple(_image_url(part) for part in images)


def _image_url(part: Mapping[str, Any]) -> str:
    found = part.get("image_url")
    known = part.keys() == {"type", "image_url"} and isinstance(found, dict) and not found.keys() - {"url", "detail"}
    if not known or not isinstance(found, dict) or not isinstance(found.get("url"), str):
        raise ValueError("an image part is {'type': 'image_url', 'image_url': {'url': 'data:…'}}, and nothing else")
    return str(found["url"])


def _part_text(part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = bounded(part.get("type") if isinstance(part, dict) else type(part).__name__)
        raise ValueError(f"content part of type {kind} is not supported: send parts of type 'text' or 'image_url'")
    text = part.get("text")
    if not isinstance(text, str) or part.keys() - {"type", "text"}:
        raise ValueError("a text part holds the keys 'type' and 'text', with a string in 'text', and nothing else")
    return text


def _as_list(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise ValueError("must be text or a list of texts")
    return [value] if isinstance(value, str) else value


#: Text, or a list of parts: :func:`split_parts` has taken the images out, texts are joined.
TextContent = Annotated[
    str,
    BeforeValidator(join_parts),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _PART}]}),
]

#: One string or a list of strings, read as a list.
TextList = Annotated[
    list[str],
    Field(fail_fast=True),
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class SamplingFields(StrictModel):
    """OpenAI's sampling fields and those of vLLM's that cannot harm the engine."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 picks the likeliest token each time."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus: smallest share of probability to choose from."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Penalty on tokens that occurred already."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Penalty on tokens by how often they occurred."""
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    """Same seed, same request: same answer, as far as the engine can."""
    stop: TextList | None = None
    """Texts that end the answer; each at least one character."""
    top_k: Annotated[int, Field(ge=-1, le=1_000_000)] | None = None
    """Number of likeliest tokens to choose from; -1 or 0 for all."""
    min_p: Fraction | None = None
    """Least probability, relative to the likeliest token's."""
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    """Factor on tokens of the prompt and the answer; 1 for none."""
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens to generate before the answer may end."""
    ignore_eos: bool | None = None
    """Go on to ``max_tokens`` even after the model's end token."""

    def sampling(self, defaults: SamplingDefaults) -> dict[str, Any]:
        """Return what the engine gets: the request's fields over the profile's, empty ones left out."""
        asked = self.model_dump(include=set(SamplingFields.model_fields), exclude_none=True)
        return defaults.model_dump(exclude={"max_tokens"}, exclude_none=True) | asked


class IgnoredFields(StrictModel):
    """OpenAI fields that ask for nothing here: only their type is looked at where nothing else is said of them."""

    user: str | None = None
    """The caller's own name for whoever asks: keeps them with one variant where a profile is routed by user."""
    metadata: dict[str, Any] | None = None
    """Ignored."""
    store: bool | None = None
    """Ignored."""
    service_tier: str | None = None
    """Ignored."""
    parallel_tool_calls: bool | None = None
    """Ignored."""
    safety_identifier: str | None = None
    """OpenAI's newer name for ``user``, read where that is missing."""
    prompt_cache_key: str | None = None
    """Ignored."""


class StreamOptions(StrictModel):
    """Options of a streamed reply."""

    include_usage: bool | None = None
    """Send one last chunk with empty ``choices`` and the token counts."""
    include_obfuscation: bool | None = None
    """Ignored."""


class ExtensionFields(StrictModel):
    """Baton's own fields that answers of all kinds take (``extra_body`` in OpenAI's client)."""

    profile: str | None = None
    """The profile to answer under; a conflict with the path or with ``model`` is refused."""
    priority: str | None = None
    """The request's priority class: `interactive` where somebody waits for the answer, `batch`, or another one that the
    gateway was given."""
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Deadline of the request, shared by all stages."""
    n_candidates: Annotated[int, Field(ge=1)] | None = None
    """Answers to generate, of which the best ``n`` are returned."""


class RagFields(StrictModel):
    """Retrieval of one request, over the profile's defaults."""

    enabled: bool | None = None
    """False switches retrieval off."""
    collection: CollectionName | None = None
    """The collection to search."""
    collections: Annotated[list[CollectionName], Field(min_length=1, fail_fast=True)] | None = None
    """Several collections to search; not together with ``collection``."""
    top_k: Annotated[int, Field(ge=1)] | None = None
    """Passages that reach the prompt."""
    candidates: Annotated[int, Field(ge=1)] | None = None
    """Passages to search for; at least ``top_k``."""
    filter: dict[str, Any] | None = None
    """Conditions on the passages' metadata. A key with a plain value must equal it: ``{"lang": "en"}``. A key with an
    object must meet every condition in it: ``{"price": {"gte": 5, "lt": 20}}``. Conditions are ``eq`` and ``ne`` (text,
    a number, true or false), ``in`` (a list of those), ``exists`` (true or false), ``lt``, ``lte``, ``gt`` and ``gte``
    (numbers). Several keys must all hold; ``{"and": [...]}``, ``{"or": [...]}`` and ``{"not": {...}}`` combine filters
    and nest. A condition on a missing key, or on a value of another type, is false (``ne`` and ``not`` are then true).
    """
    min_score: float | None = None
    """Passages below this score are dropped."""
    mode: Literal["hybrid", "vector", "text"] | None = None
    """Which searches run."""
    late_interaction: bool | None = None
    """Rank the candidates by MaxSim over their token embeddings."""
    return_contexts: bool | None = None
    """Return the passages' text in ``baton.contexts``."""
