"""A model's engine as the gateway sees it: a stream by value from an application of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from app.errors import BatonError, Overloaded, ReplicaLost, engine_died
from app.failures import translate
from app.handles import cancel_response
from app.jobs import base_model
from app.metrics import Metrics
from app.retries import Retries
from app.stages.generator import says_that_the_engine_died
from app.traces import Carrier


class RemoteEngine:
    """A model's engine in an application of its own, streamed by value (``app/stages/generator.py: Engine``)."""

    def __init__(self, stage: str, find_handle: Callable[[], Any], metrics: Metrics) -> None:
        self._stage = stage
        self._find_handle = find_handle
        self._metrics = metrics
        self._handle: Any = None
        self._retries = Retries(stage, metrics)
        self._slots: int | None = None

    def slots(self) -> int | None:
        """Return how many requests the engine's replicas work on at once; None where that is not known yet.

        Of an engine without replicas, the number that it had: requests go on to Serve, which starts one for them.
        """
        # Serve keeps its router's replicas up to date; there is no public way to them, and asking its controller per
        # request would take milliseconds.
        router = getattr(getattr(self._stream(), "_router", None), "_asyncio_router", None)
        replicas = getattr(getattr(router, "_request_router", None), "curr_replicas", {})
        self._slots = sum(replica.max_ongoing_requests for replica in replicas.values()) or self._slots
        return self._slots

    async def generate(self, kind: str, body: Mapping[str, Any], trace: Carrier | None = None) -> AsyncIterator[Any]:
        """Yield the engine's items; closing the iterator, or leaving it for any reason, aborts the request.

        A request whose replica dies before the first item goes to another one.
        """
        made = 1
        while True:
            begun = False
            async with aclosing(self._generated(kind, body, trace)) as items:
                try:
                    async for item in items:
                        begun = True
                        yield item
                    self._retries.answered()
                    return
                except ReplicaLost:
                    if begun or not await self._retries.another(made):
                        raise
            made += 1

    async def _generated(self, kind: str, body: Mapping[str, Any], trace: Carrier | None) -> AsyncGenerator[Any, None]:
        response = None
        finished = False
        try:
            # A trace is sent where there is one, so that engines in applications of an older version go on serving.
            handle = self._replica_with(str(body.get("model", "")))
            response = handle.remote(kind, dict(body), **({"trace": trace} if trace else {}))
            async for item in response:
                if says_that_the_engine_died(item):
                    raise engine_died(self._stage)
                yield item
            finished = True
        except BatonError:
            raise
        except Exception as error:
            translated = translate(error, self._stage)
            if isinstance(translated, Overloaded):
                self._metrics.add("baton_sheds_total", stage=self._stage, priority="")
            raise translated from None
        finally:
            if response is not None:
                cancel_response(response)
            if not finished:
                self._metrics.add("baton_cancels_total", stage=self._stage)

    def _replica_with(self, model: str) -> Any:
        if model == base_model(model):
            return self._stream()
        # Serve sends the request to a replica that has the adapter, and otherwise it loads there.
        return self._stream().options(multiplexed_model_id=model)

    def _stream(self) -> Any:
        if self._handle is None:
            handle = self._find_handle()
            # Serve's default, cloudpickle, takes 5 us per item and end where pickle takes 1; items are plain data.
            self._handle = handle.options(
                method_name="generate", stream=True, response_serialization="pickle", _by_reference=False
            )
        return self._handle
