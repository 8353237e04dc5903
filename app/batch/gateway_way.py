"""Asking a gateway for a row's answer, at low priority, over HTTP or inside of the gateway's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from app.batch.ledger import Record
from app.batch.rows import ENDPOINTS, Row
from app.batch.run import TryAgain
from app.errors import (
    CollectionDamaged,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    Overloaded,
    RateLimitExceeded,
    StageUnavailable,
    Unauthenticated,
)

_CONNECT_SECONDS = 5.0
#: Longer than any deadline that a gateway grants by default: its own refusal comes first.
_SILENCE_SECONDS = 660.0
#: What a passed deadline uses up of a row's attempts. Nearly always the row waited behind others, which may last hours.
_LATE = 0.1
#: Endpoints whose requests may name a priority.
_WITH_PRIORITY = frozenset(ENDPOINTS[:2])


class GatewayAsker:
    """Sends rows to the gateway that ``client`` reaches, as requests of the class ``priority``."""

    def __init__(self, client: httpx.AsyncClient, priority: str, run: str) -> None:
        self._client = client
        self._priority = priority
        self._run = run

    async def ask(self, row: Row) -> Record:
        """Return how the row ended. Raises TryAgain, and an error that stops the whole run."""
        body = dict(row.body or {})
        if row.url in _WITH_PRIORITY:
            body.setdefault("priority", self._priority)
        request_id = f"{self._run}-{row.number}"
        try:
            reply = await self._client.post(
                row.url,
                content=orjson.dumps(body),
                headers={"Content-Type": "application/json", "x-request-id": request_id},
            )
        except httpx.TransportError as error:
            told = StageUnavailable(f"The gateway does not answer ({type(error).__name__}).", "gateway")
            raise TryAgain(told, cost=isinstance(error, httpx.ReadError | httpx.RemoteProtocolError)) from None
        return _read(row, reply, request_id)


class CheckedAsker:
    """Asks through ``asker``, and looks before the first row who answers at the client's address."""

    def __init__(self, asker: GatewayAsker, client: httpx.AsyncClient) -> None:
        self._asker = asker
        self._client = client
        self._looking = asyncio.Lock()
        self._looked = False

    async def ask(self, row: Row) -> Record:
        """Return how the row ended. Raises as the asker does, and where no gateway or something else answers."""
        async with self._looking:
            if not self._looked:
                await _check_gateway(self._client)
                self._looked = True
        return await self._asker.ask(row)


async def _check_gateway(client: httpx.AsyncClient) -> None:
    """Raise StageUnavailable where nobody answers, InvalidRequest where no gateway does, and Unauthenticated."""
    address = str(client.base_url).rstrip("/")
    try:
        reply = await client.get("/v1/models")
    except httpx.TransportError as error:
        raise StageUnavailable(
            f"No gateway answers at {address} ({type(error).__name__}): start one with `make run`, name another with "
            "--url, or wait for it with --wait-seconds.",
            "batch",
        ) from None
    body = _object(reply) or {}
    refusal = body.get("error")
    if reply.status_code == httpx.codes.UNAUTHORIZED:
        told = refusal.get("message") if isinstance(refusal, dict) else None
        raise Unauthenticated(str(told or "The gateway asks for an API key."))
    if not {"data", "error"} & body.keys():
        raise InvalidRequest(f"Something other than Baton answers at {address}: correct --url.", "batch")


def gateway_client(url: str, key: str, concurrency: int) -> httpx.AsyncClient:
    """Return a client for a gateway at ``url``, an address as :func:`app.ops.arguments.gateway` reads it."""
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, limits=limits)


def _object(reply: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object that a reply is; None where it is something else."""
    try:
        body = orjson.loads(reply.content)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None


def _read(row: Row, reply: httpx.Response, request_id: str) -> Record:
    body = _object(reply)
    if reply.status_code == 200 and body is not None:
        return Record(row.number, row.custom_id, 200, request_id, body)
    error = body.get("error") if body is not None else None
    if not isinstance(error, dict):
        told = StageUnavailable(f"Something other than Baton answers at {reply.url.host}: check the address.")
        raise TryAgain(told, cost=reply.status_code < 500)  # a proxy says so while the gateway behind it starts anew
    return _refused(row, reply, error, request_id)


def _refused(row: Row, reply: httpx.Response, error: Mapping[str, Any], request_id: str) -> Record:
    """Return the record of a refused row, unless another try may help or all rows would be refused alike."""
    message, stage, status = str(error.get("message")), str(error.get("stage")), reply.status_code
    if status == 401:
        raise Unauthenticated(message)
    if status in (429, 503):
        wait = reply.headers.get("retry-after", "")
        kind = RateLimitExceeded if status == 429 else Overloaded
        told = kind(message, stage, None, int(wait) if wait.isascii() and wait.isdigit() else None)
        raise TryAgain(told, cost=error.get("code") == CollectionDamaged.code)
    if status >= 500:
        if error.get("code") == DeadlineExceeded.code:
            raise TryAgain(DeadlineExceeded(message, stage), cost=_LATE)
        raise TryAgain(EngineFailed(message, stage), cost=1)
    return Record(row.number, row.custom_id, status, request_id, None, dict(error))
