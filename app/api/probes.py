"""``GET /healthz`` and ``GET /readyz``, and ``HEAD`` for probes that look at the status only.

Each is routed twice: the first route serves, and the second is the one that the API's description shows.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.context import gateway
from app.api.error_handlers import error_response
from app.api.replies import json_reply
from app.errors import StageUnavailable

router = APIRouter(tags=["probes"])


_METHODS = ["GET", "HEAD"]


@router.get("/healthz", summary="Is the gateway alive?")
@router.api_route("/healthz", methods=_METHODS, include_in_schema=False)
async def healthz(request: Request) -> Response:
    """Tell that the gateway answers; nothing else is asked."""
    return _for_method(request, json_reply({"status": "ok"}))


@router.get("/readyz", summary="Does every stage serve?")
@router.api_route("/readyz", methods=_METHODS, include_in_schema=False)
async def readyz(request: Request) -> Response:
    """Tell whether every stage and model serves; 503 names in `missing` what does not, and why."""
    stages = await gateway(request).port().readiness()
    missing = {name: state for name, state in stages.items() if state != "ready"}
    if not missing:
        return _for_method(request, json_reply({"status": "ready", "stages": stages}))
    error = StageUnavailable(f"Not ready: {', '.join(missing)}.", stage=next(iter(missing)))
    refusal = error_response(error, request.scope)
    retry_after = {"Retry-After": refusal.headers["Retry-After"]}
    body = {"status": "not ready", "missing": missing, **error.body()}
    return _for_method(request, json_reply(body, error.status, retry_after))


def _for_method(request: Request, reply: Response) -> Response:
    """Drop the body of a reply to ``HEAD``; its length stays announced."""
    if request.method == "HEAD":
        reply.body = b""
    return reply
