"""What holds for the query of every route: a parameter stands there once, unless it is described as a list."""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from fastapi.routing import APIRoute

from app.errors import InvalidRequest, bounded


async def refuse_doubled(request: Request) -> None:
    """Refuse a parameter that stands in the query more than once: of two values one would be dropped without a word.

    The parameters that a route describes as arrays (``openapi_extra``) may. Raises InvalidRequest.
    """
    counted = Counter(name for name, _ in request.query_params.multi_items())
    doubled = [name for name, count in counted.items() if count > 1]
    for name in doubled:
        if name not in _lists(request.scope.get("route")):
            raise InvalidRequest(f"{bounded(name)} stands more than once in the query: give it once.", param=name[:200])


def _lists(route: object) -> set[str]:
    extra = route.openapi_extra if isinstance(route, APIRoute) else None
    parameters = (extra or {}).get("parameters", ())
    return {found["name"] for found in parameters if found["schema"].get("type") == "array"}
