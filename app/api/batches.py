"""OpenAI's Batches: rows of an uploaded file, answered at low priority. A key reaches its own batches only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from app.api.body import JsonRoute
from app.api.fields import StrictModel
from app.api.files import LONGEST_LIFE, SHORTEST_LIFE, After, batches_config, check_life, owner, page, stored
from app.api.replies import json_reply
from app.batch.rows import ENDPOINTS
from app.batch.store import Batches, Files
from app.errors import InvalidRequest, bounded
from app.faults import HOURS_PATTERN

router = APIRouter(prefix="/v1/batches", route_class=JsonRoute, strict_content_type=False, tags=["batches"])

_Key = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]
#: Fields of a batch before anything has happened to it, as OpenAI's objects have them.
_BLANK: dict[str, Any] = dict.fromkeys(
    (
        *("errors", "output_file_id", "error_file_id", "in_progress_at", "finalizing_at", "completed_at"),
        *("failed_at", "expired_at", "cancelling_at", "cancelled_at"),
    )
)


class OutputLife(StrictModel):
    """How long the files that a batch writes stay."""

    anchor: Literal["created_at"]
    """The time counts from the making of the files."""
    seconds: Annotated[int, Field(ge=SHORTEST_LIFE, le=LONGEST_LIFE)]
    """How long they stay."""


class BatchBody(StrictModel):
    """A batch to make."""

    input_file_id: str
    """An uploaded file with `purpose` `batch`."""
    endpoint: str
    """What all rows ask for: `/v1/chat/completions`, `/v1/completions` or `/v1/embeddings`."""
    completion_window: Annotated[str, Field(pattern=HOURS_PATTERN)]
    """How long it may take, in hours, such as `24h`; rows that are not answered by then expire."""
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = None
    """The caller's own notes."""
    output_expires_after: OutputLife | None = None
    """How long the files of answers and errors stay; without it, as long as others do."""


def _batches(request: Request) -> Batches:
    return Batches(batches_config(request), owner(request))


def _body(state: dict[str, Any]) -> dict[str, Any]:
    return _BLANK | state


@router.post("", summary="Make a batch")
async def create_batch(body: BatchBody, request: Request) -> Response:
    """Answer all rows of a file, as capacity is free. A row that cannot be answered stops none of the others."""
    config = batches_config(request)
    if body.endpoint not in ENDPOINTS:
        raise InvalidRequest(f"endpoint is {bounded(body.endpoint)}: use {', '.join(ENDPOINTS)}.", param="endpoint")
    hours = int(body.completion_window[:-1])
    if not 1 <= hours <= config.max_hours:
        raise InvalidRequest(f"completion_window must be from 1h to {config.max_hours}h.", param="completion_window")
    meta = await stored(Files(config, owner(request)).get, body.input_file_id, "input_file_id")
    if meta["purpose"] != "batch":
        raise InvalidRequest("input_file_id names the output of a batch: upload its rows.", param="input_file_id")
    asked = body.model_dump(include={"input_file_id", "endpoint", "completion_window", "metadata"})
    if body.output_expires_after is not None:
        check_life(body.output_expires_after.seconds, config, "output_expires_after.seconds")
        asked["output_expires_after"] = body.output_expires_after.model_dump()
    return json_reply(_body(await stored(_batches(request).create, asked, hours)))


@router.get("", summary="List batches")
async def list_batches(
    request: Request, after: After = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    """List the key's batches, the newest first."""
    found = await stored(_batches(request).list_all)
    return page([_body(state) for state in found], after, limit)


@router.get("/{batch_id}", summary="Tell about a batch")
async def get_batch(batch_id: str, request: Request) -> Response:
    """Tell how far a batch is and, at its end, which files hold answers and errors."""
    return json_reply(_body(await stored(_batches(request).get, batch_id)))


@router.post("/{batch_id}/cancel", summary="Cancel a batch")
async def cancel_batch(batch_id: str, request: Request) -> Response:
    """Stop a batch; what was answered until then is written out."""
    return json_reply(_body(await stored(_batches(request).cancel, batch_id)))
