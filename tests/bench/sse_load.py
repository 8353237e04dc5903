"""A client for streamed answers that costs little beside what it measures: kept-alive connections, no JSON parsing.

A token is an event whose text is not empty. Times are of the arrival of the bytes.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_TOKEN = re.compile(rb'"content":"[^"]')
_TOKEN_BYTES = 12
_END = b"0\r\n\r\n"
_TIMEOUT_SECONDS = 120


@dataclass
class Answer:
    """Arrivals of one answer's tokens, in seconds after the question was sent; ``body`` only where it was asked for."""

    arrivals: list[float] = field(default_factory=list)
    seconds: float = 0.0
    body: bytes = b""

    @property
    def first(self) -> float:
        """Time to first token."""
        return self.arrivals[0]


class Connection(asyncio.Protocol):
    """One kept-alive HTTP connection that asks one question at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._tail = b""
        self._kept: list[bytes] | None = None
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Count the tokens in what came."""
        elapsed = time.perf_counter() - self._sent
        if not self._answered:
            self._answered = True
            if not data.startswith(b"HTTP/1.1 200"):
                self._fail(ConnectionError(data[:400].decode(errors="replace")))
                return
        window = self._tail + data
        found = len(_TOKEN.findall(window))
        self._tail = window[1 - _TOKEN_BYTES :]
        self._answer.arrivals.extend([elapsed] * found)
        if self._kept is not None:
            self._kept.append(data)
        if window.endswith(_END) and self._done is not None and not self._done.done():
            self._answer.seconds = elapsed
            self._done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the question at work."""
        self._fail(error or ConnectionError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)

    async def ask(self, request: bytes, keep: bool = False) -> Answer:
        """Send a request and wait for the end of the answer."""
        self._answer, self._answered, self._tail = Answer(), False, b""
        self._kept = [] if keep else None
        self._done = asyncio.get_running_loop().create_future()
        self._sent = time.perf_counter()
        self._transport.write(request)
        await asyncio.wait_for(self._done, _TIMEOUT_SECONDS)
        self._answer.body = b"".join(self._kept or ())
        return self._answer

    @property
    def closed(self) -> bool:
        """Whether either side hung up."""
        return bool(self._transport.is_closing())

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


class Client:
    """Any number of kept-alive connections to one endpoint."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._connections: list[Connection] = []

    def request(self, body: Mapping[str, Any]) -> bytes:
        """Return the bytes of one request."""
        content = json.dumps(body).encode()
        head = f"POST {self._path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content

    async def ask(self, streams: int, body: Mapping[str, Any], keep: bool = False) -> list[Answer]:
        """Send the same question over ``streams`` connections at once and wait for all answers."""
        loop = asyncio.get_running_loop()
        # Servers close what idles for a few seconds while another side has its turn.
        self._connections = [one for one in self._connections if not one.closed]
        while len(self._connections) < streams:
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
            self._connections.append(connection)
        request = self.request(body)
        return await asyncio.gather(*(one.ask(request, keep) for one in self._connections[:streams]))

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()


def gaps(answers: Sequence[Answer]) -> list[float]:
    """Return the times between tokens of each answer, in seconds; what arrived together has none between."""
    return [later - sooner for answer in answers for sooner, later in pairwise(answer.arrivals)]


def lateness(answers: Sequence[Answer], interval: float) -> list[float]:
    """Return how late each token was against an even schedule through its answer's most punctual token, in seconds."""
    late: list[float] = []
    for answer in answers:
        offsets = [arrival - number * interval for number, arrival in enumerate(answer.arrivals)]
        late.extend(offset - min(offsets) for offset in offsets)
    return late
