"""Collections and their documents: the ingestion that callers reach over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema
from starlette.datastructures import QueryParams

from app.api.body import NDJSON_TYPES, JsonRoute, check_json_type, media_type, read_object
from app.api.caps import holds_at_most
from app.api.context import facts_of, gateway, limits_of
from app.api.error_handlers import describe_faults
from app.api.fields import StrictModel
from app.api.hangup import run_unless_gone
from app.api.replies import json_reply
from app.config.gateway import LimitsConfig
from app.errors import InvalidRequest, UnsupportedMediaType, bounded, no_collection
from app.faults import COLLECTION_PATTERN
from app.ingestion.documents import MAX_ID_CHARS, MAX_SOURCE_CHARS, check_ids, id_text, parse_document
from app.ingestion.documents import Document as ReadDocument
from app.ingestion.readers import BadRow, read_parquet_body, split_front_matter
from app.keys.rights import Rights

router = APIRouter(prefix="/v1/collections", route_class=JsonRoute, strict_content_type=False, tags=["collections"])

CollectionPath = Annotated[str, Path(pattern=COLLECTION_PATTERN, description="The collection's name.")]
T = TypeVar("T", bound=StrictModel)
DocumentId = Annotated[
    str,
    BeforeValidator(id_text),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}, {"type": "integer"}]}),
]


def _plain_value(value: Any) -> Any:
    if not isinstance(value, str | int | float):  # true and false are whole numbers to Python
        raise ValueError("must be text, a number, true or false")
    return value


Fact = Annotated[str | float | int | bool, BeforeValidator(_plain_value)]
Source = Annotated[str, Field(max_length=MAX_SOURCE_CHARS)]
PARQUET_TYPE = "application/vnd.apache.parquet"
TEXT_TYPES = ("text/markdown", "text/plain")
_ACCEPTED = f"application/json, application/x-ndjson, {', '.join(TEXT_TYPES)} or {PARQUET_TYPE}"


class Document(StrictModel):
    """One document to chunk, embed and store."""

    text: Annotated[str, Field(min_length=1)]
    """The text; it is chunked."""
    id: DocumentId | None = None
    """Replaces the stored document of the same id; absent for one made from the content. A number is read as text."""
    title: Source | None = None
    """Stands above each passage of the document."""
    source: Source | None = None
    """Where it comes from, as citations show it."""
    metadata: dict[str, Fact] | None = None
    """Facts to filter by."""


class DocumentsBody(StrictModel):
    """Documents to store."""

    documents: Annotated[list[Document], Field(fail_fast=True)]
    """The documents; at least one."""


class IdsBody(StrictModel):
    """Documents to delete."""

    ids: Annotated[list[DocumentId], Field(min_length=1, fail_fast=True)]
    """Ids of documents."""


class Origin(StrictModel):
    """What a body that is no JSON cannot say of itself."""

    id: DocumentId | None = None
    """Id of a Markdown or text body, before the one in its front matter; absent for one made from the text."""
    source: Source | None = None
    """Source of a Markdown or text body, before the one in its front matter; of Parquet rows that name none."""


_DELETE = {
    "parameters": [
        {
            "name": "id",
            "in": "query",
            "description": "Id of a document, as often as need be; without a body.",
            "schema": {"type": "array", "items": {"type": "string"}},
        }
    ],
    "requestBody": {"content": {"application/json": {"schema": IdsBody.model_json_schema()}}},
}

_UPSERT_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["documents"],
                "properties": {"documents": {"type": "array", "minItems": 1, "items": Document.model_json_schema()}},
            }
        },
        "application/x-ndjson": {"schema": {"type": "string", "description": "One document as JSON on each line."}},
        "text/markdown": {
            "schema": {
                "type": "string",
                "description": "One document. Front matter (`key: value` lines between two `---` at the top) may give "
                "its id, title and source; other keys become metadata.",
            }
        },
        "text/plain": {"schema": {"type": "string", "description": "One document, UTF-8."}},
        PARQUET_TYPE: {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "One document a row, in the columns text, id, title, source and metadata (a struct); "
                "other columns of plain values become metadata, lists are left out.",
            }
        },
    },
}


@router.get("", summary="List collections")
async def list_collections(request: Request) -> Response:
    """List collections with their counts of documents and passages.

    A key sees those of its scopes; one of a tenant, those that hold documents of its own, which alone are counted.
    """
    return json_reply({"object": "list", "data": await _listed(request)})


@router.get("/{name}", summary="Describe one collection")
async def get_collection(name: CollectionPath, request: Request) -> Response:
    """Describe one collection."""
    _rights(request).check_collection(name)
    for found in await _listed(request):
        if found["name"] == name:
            return json_reply(found)
    raise no_collection(name, "gateway", "name")


@router.delete("/{name}", summary="Drop a collection")
async def delete_collection(name: CollectionPath, request: Request) -> Response:
    """Drop a collection with all its documents; with the key of a tenant, all of the tenant's in it."""
    rights = _rights(request)
    rights.check_drop(name)
    await gateway(request).port().delete_collection(name, rights.tenant)
    return json_reply({"name": name, "deleted": True})


@router.post("/{name}/documents", summary="Store documents", openapi_extra={"requestBody": _UPSERT_BODY})
async def upsert_documents(name: CollectionPath, request: Request, origin: Annotated[Origin, Query()]) -> Response:
    """Store documents, all or none; those of a known id are replaced. The collection is made if need be.

    JSON, one JSON object a line, one Markdown or text document, or a Parquet file: the Content-Type tells which.
    """
    rights = _rights(request)
    rights.check_ingest(name)
    documents = await _read_documents(request, origin)
    storing = gateway(request).port().upsert_documents(name, documents, rights.tenant)
    done = await run_unless_gone(request.receive, storing)
    counts = {"documents": done.documents, "passages": done.passages, "unchanged": done.unchanged}
    return json_reply({"collection": name, **counts})


@router.delete("/{name}/documents", summary="Delete documents", openapi_extra=_DELETE)
async def delete_documents(name: CollectionPath, request: Request) -> Response:
    """Delete documents by id, in the body or as `?id=a&id=b`; `deleted` counts those that were there."""
    limits, rights = limits_of(request), _rights(request)
    rights.check_ingest(name)
    ids = _read_ids(request.query_params, await _read_body(request), limits)
    holds_at_most("ids", len(ids), limits.max_documents, "ids")
    deleted = await gateway(request).port().delete_documents(name, ids, rights.tenant)
    return json_reply({"collection": name, "deleted": deleted})


def _rights(request: Request) -> Rights:
    return facts_of(request.scope).rights


async def _listed(request: Request) -> list[dict[str, Any]]:
    """Return the collections that the key sees."""
    rights = _rights(request)
    found = await gateway(request).port().list_collections(rights.tenant)
    return [collection for collection in found if rights.sees_collection(collection["name"])]


async def _read_body(request: Request) -> bytes:
    raw = await request.body()
    if raw:
        check_json_type(media_type(request))
    return raw


def _read_ids(query: QueryParams, raw: bytes, limits: LimitsConfig) -> list[str]:
    named = query.getlist("id")
    for field in query:
        if field != "id":
            raise InvalidRequest(f"Unknown field {bounded(field)} in the query: ids go in as ?id=a&id=b.", param=field)
    if named and raw.strip():
        raise InvalidRequest("Send the ids in the query or in the body, not in both.", param="ids")
    return _parse(IdsBody, {"ids": named} if named else read_object(raw, limits)).ids


async def _read_documents(request: Request, origin: Origin) -> list[dict[str, Any]]:
    kind, limits = _kind(request), limits_of(request)
    raw = await request.body()
    if kind in TEXT_TYPES:
        return [_as_dict(_read_text(raw, kind, origin))]
    _refuse_unread(origin, kind)
    if kind == PARQUET_TYPE:
        # In a thread, since unpacking holds up other requests otherwise.
        return await asyncio.to_thread(_read_rows, raw, origin, limits)
    if kind in NDJSON_TYPES:
        places, documents = _read_lines(raw, limits)
    else:
        documents = _parse(DocumentsBody, read_object(raw, limits)).documents
        _check_count(len(documents), limits)
        places = [f"documents[{index}]" for index in range(len(documents))]
    found = [document.model_dump(exclude_none=True) for document in documents]
    check_ids(found, places)
    return found


def _kind(request: Request) -> str:
    """Return the media type, one that is read here. Raises UnsupportedMediaType."""
    kind = media_type(request)
    if kind in ("", "application/json", PARQUET_TYPE, *TEXT_TYPES) or kind in NDJSON_TYPES:
        return kind
    raise UnsupportedMediaType(f"Content-Type is {bounded(kind)}: send {_ACCEPTED}.")


def _refuse_unread(origin: Origin, kind: str) -> None:
    """Refuse query parameters that would change nothing."""
    unread = {"id"} if kind == PARQUET_TYPE else {"id", "source"}
    for field in sorted(unread & origin.model_fields_set):
        raise InvalidRequest(f"{field} in the query goes with one Markdown or text document only.", param=field)


def _check_count(count: int, limits: LimitsConfig) -> None:
    if not count:
        raise InvalidRequest("documents is empty: at least one document is needed.", param="documents")
    holds_at_most("documents", count, limits.max_documents, "documents")


def _as_dict(document: ReadDocument) -> dict[str, Any]:
    """Return a document as the pipeline takes it."""
    fields = {field: getattr(document, field) for field in ("id", "text", "title", "source")}
    return {field: value for field, value in fields.items() if value} | {"metadata": dict(document.metadata)}


def _read_text(raw: bytes, kind: str, origin: Origin) -> ReadDocument:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The request body is not UTF-8 (byte {error.start}).") from None
    front, body = split_front_matter(text) if kind == "text/markdown" else ({}, text)
    return parse_document({**front, **origin.model_dump(exclude_none=True), "text": body}, "document")


def _read_rows(raw: bytes, origin: Origin, limits: LimitsConfig) -> list[dict[str, Any]]:
    rows = read_parquet_body(raw, origin.source or "", limits.max_body_bytes)
    documents: list[dict[str, Any]] = []
    for row in rows:
        if isinstance(row, BadRow):
            where = f"Row {row.line}: " if row.line else "The request body "
            raise InvalidRequest(f"{where}{row.reason}.", param="documents")
        documents.append(_as_dict(row.document))
        holds_at_most("documents", len(documents), limits.max_documents, "documents")
    _check_count(len(documents), limits)
    check_ids(documents, [f"Row {number}" for number in range(1, len(documents) + 1)])
    return documents


def _read_lines(raw: bytes, limits: LimitsConfig) -> tuple[list[str], list[Document]]:
    """Return the lines' names and their documents."""
    lines = [(number, line) for number, line in enumerate(raw.split(b"\n"), 1) if line.strip()]
    holds_at_most("documents", len(lines), limits.max_documents, "documents")
    if not lines:
        raise InvalidRequest("The request body is empty: send one document as JSON on each line.")
    places = [f"Line {number}" for number, _ in lines]
    return places, [
        _parse(Document, read_object(line, limits, place), f"{place}: ")
        for place, (_, line) in zip(places, lines, strict=True)
    ]


def _parse(model: type[T], parsed: Any, where: str = "") -> T:
    try:
        return model.model_validate(parsed)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise describe_faults(faults, model=model, where=where) from None
