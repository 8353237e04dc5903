"""``GET /healthz`` and ``GET /readyz``, and ``HEAD`` for probes that look at the status only.

Each is routed twice: the first route serves, and the second is the one that the API's description shows.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.api.context import facts_of, gateway
from app.api.error_handlers import error_response
from app.api.replies import json_reply
from app.errors import StageUnavailable

router = APIRouter(tags=["probes"])


_METHODS = ["GET", "HEAD"]
_READY = "ready"


@router.get("/healthz", summary="Is the gateway alive?")
@router.api_route("/healthz", methods=_METHODS, include_in_schema=False)
async def healthz(request: Request) -> Response:
    """Tell that the gateway answers; nothing else is asked."""
    return _for_method(request, json_reply({"status": "ok"}))


@router.get("/readyz", summary="Does every stage serve?")
@router.api_route("/readyz", methods=_METHODS, include_in_schema=False)
async def readyz(request: Request) -> Response:
    """Tell whether every stage and model serves; 503 names in `missing` what does not, and why.

    Where keys are on, no name is told without one, and with one those of models that it may use.
    """
    stages = await gateway(request).port().readiness()
    shown = _shown(request, stages)
    missing = {name: state for name, state in stages.items() if state != _READY}
    if not missing:
        return _for_method(request, json_reply({"status": _READY, **({"stages": shown} if shown else {})}))
    told = {name: state for name, state in missing.items() if name in shown}
    error = _not_ready(told, hidden=len(told) < len(missing))
    refusal = error_response(error, request.scope)
    retry_after = {"Retry-After": refusal.headers["Retry-After"]}
    body = {"status": "not ready", **({"missing": told} if shown else {}), **error.body()}
    return _for_method(request, json_reply(body, error.status, retry_after))


def _shown(request: Request, stages: Mapping[str, str]) -> dict[str, str]:
    """Return of the stages and models those whose names the caller may read."""
    facts = facts_of(request.scope)
    if facts.stranger:
        return {}
    models = gateway(request).settings().models
    return {name: state for name, state in stages.items() if name not in models or facts.rights.sees_model(name)}


def _not_ready(told: Mapping[str, str], *, hidden: bool) -> StageUnavailable:
    names = [*told, *(["what is told only to an API key that may use it"] if hidden else [])]
    return StageUnavailable(f"Not ready: {', '.join(names)}.", stage=next(iter(told), "gateway"))


def _for_method(request: Request, reply: Response) -> Response:
    """Drop the body of a reply to ``HEAD``; its length stays announced."""
    if request.method == "HEAD":
        reply.body = b""
    return reply
