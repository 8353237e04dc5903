"""``GET /healthz`` and ``GET /readyz``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.context import gateway
from app.api.error_handlers import error_response
from app.api.replies import json_reply
from app.errors import StageUnavailable

router = APIRouter(tags=["probes"])


@router.get("/healthz", summary="Is the gateway alive?")
async def healthz() -> Response:
    """Tell that the gateway answers; nothing else is asked."""
    return json_reply({"status": "ok"})


@router.get("/readyz", summary="Does every stage serve?")
async def readyz(request: Request) -> Response:
    """Tell whether every stage and model serves; 503 names in `missing` what does not, and why."""
    stages = await gateway(request).port().readiness()
    missing = {name: state for name, state in stages.items() if state != "ready"}
    if not missing:
        return json_reply({"status": "ready", "stages": stages})
    error = StageUnavailable(f"Not ready: {', '.join(missing)}.", stage=next(iter(missing)))
    refusal = error_response(error, request.scope)
    retry_after = {"Retry-After": refusal.headers["Retry-After"]}
    return json_reply({"status": "not ready", "missing": missing, **error.body()}, error.status, retry_after)
