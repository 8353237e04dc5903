"""Collections and their documents: the ingestion that callers reach over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field, ValidationError

from app.api.body import NDJSON_TYPES, JsonRoute, media_type, read_json
from app.api.caps import at_most
from app.api.context import gateway, limits_of
from app.api.error_handlers import describe_faults
from app.api.fields import StrictModel
from app.api.replies import json_reply
from app.config.gateway import LimitsConfig
from app.errors import CollectionNotFound, InvalidRequest, UnsupportedMediaType, bounded

router = APIRouter(prefix="/v1/collections", route_class=JsonRoute, strict_content_type=False, tags=["collections"])

CollectionPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="The collection's name.")]
T = TypeVar("T", bound=StrictModel)
DocumentId = Annotated[str, Field(min_length=1, max_length=256)]


class Document(StrictModel):
    """One document to chunk, embed and store."""

    text: Annotated[str, Field(min_length=1)]
    """The text; it is chunked."""
    id: DocumentId | None = None
    """Replaces the stored document of the same id; absent for one made from the content."""
    source: Annotated[str, Field(max_length=1024)] | None = None
    """Where it comes from, as citations show it."""
    metadata: dict[str, str | float | int | bool] | None = None
    """Facts to filter by."""


class DocumentsBody(StrictModel):
    """Documents to store."""

    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True)]
    """The documents."""


class IdsBody(StrictModel):
    """Documents to delete."""

    ids: Annotated[list[DocumentId], Field(min_length=1, fail_fast=True)]
    """Ids of documents."""


_UPSERT_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["documents"],
                "properties": {"documents": {"type": "array", "items": Document.model_json_schema()}},
            }
        },
        "application/x-ndjson": {"schema": {"type": "string", "description": "One document as JSON on each line."}},
    },
}


@router.get("", summary="List collections")
async def list_collections(request: Request) -> Response:
    """List collections with their counts of documents and passages."""
    return json_reply({"object": "list", "data": await gateway(request).port().list_collections()})


@router.get("/{name}", summary="Describe one collection")
async def get_collection(name: CollectionPath, request: Request) -> Response:
    """Describe one collection."""
    for found in await gateway(request).port().list_collections():
        if found["name"] == name:
            return json_reply(found)
    raise CollectionNotFound(f"There is no collection {name!r}.", param="name")


@router.delete("/{name}", summary="Drop a collection")
async def delete_collection(name: CollectionPath, request: Request) -> Response:
    """Drop a collection with all its documents."""
    await gateway(request).port().delete_collection(name)
    return json_reply({"name": name, "deleted": True})


@router.post("/{name}/documents", summary="Store documents", openapi_extra={"requestBody": _UPSERT_BODY})
async def upsert_documents(name: CollectionPath, request: Request) -> Response:
    """Store documents, all or none; those of a known id are replaced. The collection is made if need be."""
    documents = await _read_documents(request)
    done = await gateway(request).port().upsert_documents(name, documents)
    counts = {"documents": done.documents, "passages": done.passages, "unchanged": done.unchanged}
    return json_reply({"collection": name, **counts})


@router.delete("/{name}/documents", summary="Delete documents")
async def delete_documents(name: CollectionPath, body: IdsBody, request: Request) -> Response:
    """Delete documents by id; `deleted` counts those that were there."""
    at_most("ids", len(body.ids), limits_of(request).max_documents)
    deleted = await gateway(request).port().delete_documents(name, body.ids)
    return json_reply({"collection": name, "deleted": deleted})


async def _read_documents(request: Request) -> list[dict[str, Any]]:
    kind, limits = media_type(request), limits_of(request)
    raw = await request.body()
    if kind in NDJSON_TYPES:
        documents = _read_lines(raw, limits)
    elif kind in ("", "application/json"):
        documents = _parse(DocumentsBody, read_json(raw, limits)).documents
        at_most("documents", len(documents), limits.max_documents)
    else:
        raise UnsupportedMediaType(f"Content-Type is {bounded(kind)}: send application/json or application/x-ndjson.")
    return [document.model_dump(exclude_none=True) for document in documents]


def _read_lines(raw: bytes, limits: LimitsConfig) -> list[Document]:
    lines = [(number, line) for number, line in enumerate(raw.split(b"\n"), 1) if line.strip()]
    at_most("documents", len(lines), limits.max_documents)
    if not lines:
        raise InvalidRequest("The request body is empty: send one document as JSON on each line.")
    return [_parse(Document, read_json(line, limits, f"Line {number}"), f"Line {number}: ") for number, line in lines]


def _parse(model: type[T], parsed: Any, where: str = "") -> T:
    try:
        return model.model_validate(parsed)
    except ValidationError as error:
        fault = describe_faults(error.errors(include_url=False, include_input=False))
        raise InvalidRequest(where + fault.message, param=fault.param) from None
