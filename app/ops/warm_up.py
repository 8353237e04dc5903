"""One answer before the pipeline is called ready.

The first request meets what has never run: the engine's kernels, chat template and grammar, the first search, the first
grounding. On two cores that took 16 to 23 s to the first token, where the second request took half a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx

from app.ops.api_key import key_headers
from app.ops.stopping import until_stopped

#: A start on two cores has 90 s in all; whoever takes longer to warm up does so with the first question.
LIMIT_SECONDS = 40.0
_QUESTION = {"messages": [{"role": "user", "content": "What does the guardrail do?"}], "max_tokens": 8}


def warm_up(url: str, say: Callable[[str], None], stop: threading.Event, limit: float = LIMIT_SECONDS) -> None:
    """Ask the gateway at ``url`` one question under its default profile, and tell how that went.

    A failure is told and nothing else: the pipeline serves. Returns at once when ``stop`` is set.
    """
    say("warming up with one answer")
    fault = until_stopped(lambda: _fault(url, limit), stop)
    if fault:
        say(f"the warm-up gave no answer ({fault}): the first question will take longer")


def _fault(url: str, limit: float) -> str:
    """Return why there was no answer; nothing where there was one."""
    try:
        where = f"{url}/v1/chat/completions"
        answer = httpx.post(where, json=_QUESTION, headers=key_headers(), timeout=limit, trust_env=False)
    except httpx.TimeoutException:
        return f"none within {limit:.0f} s"
    except httpx.HTTPError as error:
        return type(error).__name__
    if answer.is_success:
        return ""
    try:
        return f"{answer.status_code}: {answer.json()['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return str(answer.status_code)
