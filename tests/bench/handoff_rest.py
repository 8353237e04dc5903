"""One stage as a REST service (uvicorn on uvloop, connections kept alive): `… <kind> <stage> <first port>`.

A stage that receives the tensor makes an array of it, reads every page and, in a chain, passes it on. Raw bytes are
passed on as they came; JSON is written anew, as a service does that has something to add.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable
from typing import Any

import aiohttp
import numpy as np
import orjson
import pybase64
import uvicorn

from tests.bench.handoff_tensor import COLUMNS, clocked, end_with_parent, ground, passages, private_array, touch


class Json:
    """base64 inside JSON."""

    def __init__(self, encode: Callable[..., bytes], decode: Callable[..., bytes]) -> None:
        self._encode, self._decode = encode, decode

    def encode(self, array: np.ndarray) -> bytes:
        text = self._encode(array.data).decode("ascii")
        return orjson.dumps({"passages": passages(), "shape": array.shape, "tensor": text})

    def decode(self, body: bytes) -> np.ndarray:
        message = orjson.loads(body)
        return np.frombuffer(self._decode(message["tensor"]), np.float32).reshape(message["shape"])


class Raw:
    """The tensor's bytes as the body."""

    def encode(self, array: np.ndarray) -> memoryview:
        return array.data.cast("B")

    def decode(self, body: bytes) -> np.ndarray:
        return np.frombuffer(body, np.float32).reshape(-1, COLUMNS)


CODECS = {
    "rest_json": Json(base64.b64encode, base64.b64decode),
    "rest_json_simd": Json(pybase64.b64encode, pybase64.b64decode),
    "rest_raw": Raw(),
}


class Service:
    """An ASGI application: `/go/<graph>/<MiB>/<work>` starts a transit, `/take/<graph>/-/<work>` brings a tensor."""

    def __init__(self, kind: str, stage: int, first_port: int) -> None:
        self._codec = CODECS[kind]
        self._kind, self._stage, self._first_port = kind, stage, first_port
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            _, verb, graph, mib, work = scope["path"].split("/")
            body = await _body(receive)
            reply = await (self._go(graph, int(mib), work) if verb == "go" else self._take(graph, body, work))
            text = orjson.dumps(reply)
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": text})

    async def _go(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        body, seconds = clocked(self._codec.encode, private_array(mib))
        reply = {"sums": [], "encode": [seconds], "decode": []}
        peers = (2,) if graph == "chain" else (2, 3, 4)
        return _merged(reply, await asyncio.gather(*(self._post(peer, f"{graph}/-/{work}", body) for peer in peers)))

    async def _take(self, graph: str, body: bytes, work: str) -> dict[str, Any]:
        array, seconds = clocked(self._codec.decode, body)
        found = touch(array) if work == "touch" else ground(array)
        reply = {"sums": [found], "encode": [], "decode": [seconds]}
        if graph == "fan" or self._stage == 4:
            return reply
        if self._kind != "rest_raw":
            body, seconds = clocked(self._codec.encode, array)
            reply["encode"].append(seconds)
        return _merged(reply, [await self._post(self._stage + 1, f"{graph}/-/{work}", body)])

    async def _post(self, peer: int, path: str, body: Any) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        url = f"http://127.0.0.1:{self._first_port + peer}/take/{path}"
        async with self._session.post(url, data=body) as answer:
            return orjson.loads(await answer.read())


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _merged(reply: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    for other in others:
        for name, values in other.items():
            reply[name].extend(values)
    return reply


def main(kind: str, stage: str, first_port: str) -> None:
    end_with_parent()
    service = Service(kind, int(stage), int(first_port))
    uvicorn.run(
        service, host="127.0.0.1", port=int(first_port) + int(stage), loop="uvloop", http="httptools",
        log_level="warning", access_log=False, lifespan="off", timeout_keep_alive=600,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
