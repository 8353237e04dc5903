"""Asking the Serve applications beside the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.exceptions import RayServeException

from app.errors import DeadlineExceeded
from app.failures import translate
from app.handles import cancel_response
from app.neighbours import not_deployed

#: The method of an application's ingress that takes the request of its route as a dict and returns the reply as one.
METHOD = "answer"


async def ask_application(name: str, request: Mapping[str, Any], deadline: float) -> Mapping[str, Any]:
    """Ask the application's ingress; see :data:`app.neighbours.AskApplication`. Raises NotFound where there is none."""
    response = None
    try:
        async with asyncio.timeout_at(deadline):
            # Asked anew each time, since it may come and go: a call of the controller, a few milliseconds.
            handle = await asyncio.to_thread(_find, name)
            response = handle.options(method_name=METHOD, _by_reference=False).remote(dict(request))
            reply: Mapping[str, Any] = await response
            return reply
    except TimeoutError:
        raise DeadlineExceeded("The request's deadline has passed.", name) from None
    except Exception as error:
        raise translate(error, name) from None
    finally:
        if response is not None:
            cancel_response(response)


def _find(name: str) -> Any:
    try:
        return serve.get_app_handle(name)
    except RayServeException:
        raise not_deployed(name) from None
