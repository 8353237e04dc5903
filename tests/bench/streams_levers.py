"""What each lever gives a streamed token: whole clusters in Serve's other modes, and single steps of a token's way."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from statistics import median

from app.deadline import Deadline
from tests.bench.measure import interleave, ratio
from tests.bench.overhead_site import Load

#: Serve as it comes: HTTP replies by reference, user code and router in threads of their own.
SERVES_DEFAULTS = {
    "RAY_SERVE_PROXY_USE_GRPC": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "1",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",
}
_ITEMS = 500
_CHUNK = (
    'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1764467131,"model":"smollm2",'
    '"choices":[{"index":0,"delta":{"content":"zebras "},"logprobs":{"content":[{"token":"zebras ","logprob":-0.1234,'
    '"bytes":[122,101,98,114,97,115,32],"top_logprobs":[]}]},"finish_reason":null}]}\n\n'
)


def haproxy(first_port: int, folder: str) -> dict[str, str]:
    """Return the environment that puts HAProxy in the place of Serve's own proxy, with files and ports of its own."""
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first_port),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(first_port + 50),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_HAPROXY_STATS_PORT": str(first_port + 60),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(first_port + 61),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{folder}/haproxy.cfg",
        "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{folder}/admin.sock",
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": f"{folder}/metrics.sock",
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": folder,
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{folder}/server-state",
    }


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process, and so of the cluster that it starts, for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def against(other: Sequence[Load], own: Sequence[Load], first_other: float, first_own: float) -> str:
    """Say what Baton's way gives against another, in CPU per token, rate and time to first token."""
    cost = ratio([load.front_microseconds for load in other], [load.front_microseconds for load in own])
    rates = [median(load.rate for load in loads) for loads in (other, own)]
    return (
        f"CPU per token {cost} of Baton's way; {rates[0]:.0f} tokens/s against {rates[1]:.0f}; "
        f"first token {first_other * 1000:.1f} ms against {first_own * 1000:.1f}"
    )


def steps() -> Iterator[tuple[str, str]]:
    """Yield single steps of a token's way: the lever and what it gave."""
    yield "one timer per answer in place of two per token", _saved(_with_timeouts, _with_deadline)
    from ray import cloudpickle

    yield (
        "pickle in place of cloudpickle for the engine's items (once per token and end)",
        _saved(_dumped(cloudpickle.dumps), _dumped(pickle.dumps)),
    )


def _saved(before: Callable[[], float], after: Callable[[], float]) -> str:
    seconds = interleave({"before": before, "after": after}, rounds=15)
    was, now = (median(seconds[name]) / _ITEMS * 1e6 for name in ("before", "after"))
    return f"{was:.1f} to {now:.1f} us per token ({ratio(seconds['before'], seconds['after'])})"


def _dumped(dumps: Callable[[object], bytes]) -> Callable[[], float]:
    def run() -> float:
        start = time.thread_time()
        for _ in range(_ITEMS):
            pickle.loads(dumps([_CHUNK]))
        return time.thread_time() - start

    return run


async def _items() -> AsyncIterator[int]:
    for number in range(_ITEMS):
        yield number


async def _judged() -> None:
    """Stand for the judgement, which waits for nothing in the gateway's process."""


def _with_timeouts() -> float:
    async def read() -> float:
        start = time.thread_time()
        async with aclosing(_items()) as items:
            while True:
                async with asyncio.timeout_at(time.monotonic() + 60):
                    if await anext(items, None) is None:
                        return time.thread_time() - start
                async with asyncio.timeout_at(time.monotonic() + 60):
                    await _judged()

    return asyncio.run(read())


def _with_deadline() -> float:
    async def read() -> float:
        start = time.thread_time()
        with closing(Deadline(time.monotonic() + 60, "generator")) as deadline:
            async with aclosing(_items()) as items:
                while await deadline.next_of(items) is not None:
                    pass
        return time.thread_time() - start

    return asyncio.run(read())
