"""OpenAI's Files: uploads for batches, and what batches wrote. A key reaches its own files only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from app.api.context import facts_of, gateway
from app.api.pages import WholeFile
from app.api.replies import json_reply
from app.batch.store import Files, check_page, owner_of
from app.config.batches import BatchesConfig
from app.errors import InvalidRequest, NotFound, StageUnavailable, UnsupportedMediaType

router = APIRouter(prefix="/v1/files", tags=["batches"])

T = TypeVar("T")
After = Annotated[str | None, Query(description="The id of the last item of the page before.")]
_PURPOSE = "batch"
_LIFE_DIGITS = 9
_PATH = "/v1/files"
_NAME_CHARS = 200
_DAY_SECONDS = 24 * 3600
#: What OpenAI takes for a file's life.
SHORTEST_LIFE, LONGEST_LIFE = 3600, 30 * _DAY_SECONDS
#: What the form of an upload takes besides the file itself.
_FORM_BYTES = 64 * 1024
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "A row as JSON on each line."},
                        "purpose": {"type": "string", "enum": [_PURPOSE]},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {
                            "type": "integer",
                            "minimum": SHORTEST_LIFE,
                            "maximum": LONGEST_LIFE,
                            "description": "How long the file stays; a batch that reads it is waited for.",
                        },
                    },
                }
            }
        },
    }
}


def upload_bytes(path: str, config: BatchesConfig) -> int:
    """Return the largest body of an upload at a path; 0 where nothing is uploaded there."""
    return config.max_file_bytes + _FORM_BYTES if path == _PATH and config.folder else 0


def check_life(seconds: int, config: BatchesConfig, param: str) -> int:
    """Return the seconds that a file is to stay. Raises InvalidRequest where that is shorter or longer than it may."""
    longest = min(LONGEST_LIFE, config.keep_days * _DAY_SECONDS or LONGEST_LIFE)
    if not SHORTEST_LIFE <= seconds <= longest:
        raise InvalidRequest(f"{param} must be from {SHORTEST_LIFE} to {longest}.", "batch", param)
    return seconds


def _life(form: FormData, config: BatchesConfig) -> int | None:
    anchor, seconds = (form.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if anchor is None and seconds is None and "expires_after" not in form:
        return None
    if anchor != "created_at":
        told = "expires_after[anchor] must be 'created_at': the time counts from the upload."
        raise InvalidRequest(told, "batch", "expires_after[anchor]")
    whole = isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) <= _LIFE_DIGITS
    return check_life(int(str(seconds)) if whole else 0, config, "expires_after[seconds]")


def batches_config(request: Request) -> BatchesConfig:
    """Return the settings of files and batches. Raises NotFound where there are none."""
    config = gateway(request).settings().batches
    if not config.folder:
        raise NotFound("This gateway keeps no files and batches: name a folder for them in settings.batches.folder.")
    return config


def owner(request: Request) -> str:
    """Return whose files and batches a request reaches."""
    return owner_of(facts_of(request.scope).key_id)


async def stored(work: Callable[..., T], *arguments: Any) -> T:
    """Run work on the storage off the event loop. Raises StageUnavailable where the storage fails."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except OSError as error:
        raise StageUnavailable(
            f"The storage of files and batches fails ({type(error).__name__}): the operator has to look after it.",
            "batch",
        ) from None


def page(items: list[dict[str, Any]], after: str | None, limit: int) -> Response:
    """Return a page of a list in OpenAI's shape."""
    shown, more = check_page(items, after, limit)
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {"first_id": None, "last_id": None}
    return json_reply({"object": "list", "data": shown, "has_more": more, **ends})


def _files(request: Request) -> Files:
    return Files(batches_config(request), owner(request))


@router.post("", summary="Upload a file of rows", openapi_extra=_UPLOAD)
async def upload(request: Request) -> Response:
    """Keep a file for a batch: JSONL with a row as `{"custom_id", "method", "url", "body"}` on each line."""
    files = _files(request)
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise UnsupportedMediaType("An upload comes as multipart/form-data, with the fields file and purpose.")
    try:
        async with request.form(max_files=1, max_fields=8) as form:
            file, purpose = form.get("file"), form.get("purpose")
            if not isinstance(file, UploadFile):
                raise InvalidRequest("file is missing: send the file's content in this field.", param="file")
            if purpose != _PURPOSE:
                raise InvalidRequest(f"purpose must be '{_PURPOSE}'.", param="purpose")
            if not file.size:
                raise InvalidRequest("The file is empty.", param="file")
            name = (file.filename or "upload.jsonl")[:_NAME_CHARS]
            life = _life(form, batches_config(request))
            meta = await stored(files.save, file.file, name, _PURPOSE, life)
    except HTTPException as error:
        raise InvalidRequest(f"The form of the upload is not valid: {error.detail}") from None
    return json_reply(meta)


@router.get("", summary="List files")
async def list_files(
    request: Request,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    purpose: str | None = None,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """List the key's files, the newest first unless `order` is `asc`."""
    found = await stored(_files(request).list_all)
    chosen = [meta for meta in found if purpose is None or meta["purpose"] == purpose]
    return page(chosen if order == "desc" else chosen[::-1], after, limit)


@router.get("/{file_id}", summary="Tell about a file")
async def get_file(file_id: str, request: Request) -> Response:
    """Tell size, name and purpose of a file."""
    return json_reply(await stored(_files(request).get, file_id))


@router.get("/{file_id}/content", summary="Download a file")
async def get_content(file_id: str, request: Request) -> Response:
    """Return a file's bytes."""
    path = await stored(_files(request).content, file_id)
    return WholeFile(path, headers={"Accept-Ranges": "none"}, media_type="application/octet-stream")


@router.delete("/{file_id}", summary="Delete a file")
async def delete_file(file_id: str, request: Request) -> Response:
    """Delete a file that no batch reads any more."""
    await stored(_files(request).delete, file_id)
    return json_reply({"id": file_id, "object": "file", "deleted": True})
