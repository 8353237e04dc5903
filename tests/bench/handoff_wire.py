"""One stage as a gRPC service, or behind a plain TCP socket that carries pickles: `… <kind> <stage> <first port>`.

The kind `arena_socket` is no rival: its sockets carry the descriptor of a tensor in Baton's arena, which shows what the
calls between the stages would cost without Ray.
"""

from __future__ import annotations

import json
import pickle
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import grpc
import numpy as np
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from app.arena import Arena, ArenaReader, Placed
from tests.bench.handoff_tensor import (
    COLUMNS,
    GRAPHS,
    clocked,
    end_with_parent,
    from_table,
    passages,
    private_array,
    private_table,
    touch,
)

_LENGTH = struct.Struct("<Q")
#: Messages of any size, and frames and reads that suit large ones.
_LIMITS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.max_frame_size", (1 << 24) - 1),
    ("grpc.experimental.tcp_read_chunk_size", 1 << 22),
    ("grpc.experimental.tcp_max_read_chunk_size", 1 << 24),
]
_SOCKET_BYTES = 4 << 20
_LEASE_SECONDS = 60.0


class Codec(Protocol):
    """Turns the tensor into what travels, and back. ``passes_on``: a stage passes on what came, not written anew."""

    passes_on: bool

    def encode(self, array: np.ndarray) -> Any: ...

    def decode(self, message: Any) -> np.ndarray: ...

    def release(self, message: Any) -> None: ...


class Wire(Protocol):
    """Sends a request to another stage."""

    def post(self, peer: int, graph: str, message: Any) -> Future[dict[str, Any]]: ...


class Stage:
    """What a stage does with a request, whatever brought it."""

    def __init__(self, stage: int, codec: Codec, wire: Wire) -> None:
        self._stage, self._codec, self._wire = stage, codec, wire

    def go(self, graph: str, mib: int) -> dict[str, Any]:
        message, seconds = clocked(self._codec.encode, private_array(mib))
        reply = {"sums": [], "encode": [seconds], "decode": []}
        try:
            return self._pass_on(reply, (2,) if graph == "chain" else (2, 3, 4), graph, message)
        finally:
            self._codec.release(message)

    def take(self, graph: str, message: Any) -> dict[str, Any]:
        array, seconds = clocked(self._codec.decode, message)
        reply = {"sums": [touch(array)], "encode": [], "decode": [seconds]}
        if graph == "fan" or self._stage == 4:
            return reply
        if not self._codec.passes_on:
            message, seconds = clocked(self._codec.encode, array)
            reply["encode"].append(seconds)
        return self._pass_on(reply, (self._stage + 1,), graph, message)

    def _pass_on(self, reply: dict[str, Any], peers: Sequence[int], graph: str, message: Any) -> dict[str, Any]:
        for other in [self._wire.post(peer, graph, message) for peer in peers]:
            for name, values in other.result().items():
                reply[name].extend(values)
        return reply


# --- gRPC -----------------------------------------------------------------------------------------------------------


class Protobuf:
    """The tensor as protobuf bytes. gRPC writes and parses the message outside of these two."""

    passes_on = True

    def encode(self, array: np.ndarray) -> BytesValue:
        return BytesValue(value=array.tobytes())

    def decode(self, message: BytesValue) -> np.ndarray:
        return np.frombuffer(message.value, np.float32).reshape(-1, COLUMNS)

    def release(self, message: Any) -> None:
        """Nothing is kept."""


class GrpcWire:
    """Channels to the other stages, opened once."""

    def __init__(self, first_port: int) -> None:
        self._first_port = first_port
        self._calls: dict[tuple[int, str], Any] = {}

    def post(self, peer: int, graph: str, message: BytesValue) -> Future[dict[str, Any]]:
        return self.call(peer, f"take_{graph}").future(message)

    def call(self, peer: int, method: str) -> Any:
        """Return the call of ``method`` at stage ``peer``."""
        if (peer, method) not in self._calls:
            channel = grpc.insecure_channel(f"127.0.0.1:{self._first_port + peer}", options=_LIMITS)
            self._calls[peer, method] = channel.unary_unary(
                f"/handoff.Stage/{method}",
                request_serializer=BytesValue.SerializeToString,
                response_deserializer=lambda data: json.loads(StringValue.FromString(data).value),
            )
        return self._calls[peer, method]


def serve_grpc(stage: int, first_port: int) -> None:
    works = Stage(stage, Protobuf(), GrpcWire(first_port))

    def handler(work: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            lambda message, _: StringValue(value=json.dumps(work(message))),
            request_deserializer=BytesValue.FromString,
            response_serializer=StringValue.SerializeToString,
        )

    methods = {f"take_{graph}": handler(lambda message, graph=graph: works.take(graph, message)) for graph in GRAPHS}
    methods |= {
        f"go_{graph}": handler(lambda message, graph=graph: works.go(graph, int(message.value))) for graph in GRAPHS
    }
    server = grpc.server(ThreadPoolExecutor(4), options=_LIMITS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("handoff.Stage", methods),))
    server.add_insecure_port(f"127.0.0.1:{first_port + stage}")
    server.start()
    server.wait_for_termination()


# --- plain sockets --------------------------------------------------------------------------------------------------


class Pickled:
    """Nested Python objects with the array, as they are."""

    passes_on = False

    def encode(self, array: np.ndarray) -> dict[str, Any]:
        return {"question": "What is passed on?", "passages": passages(), "token_embeddings": array}

    def decode(self, message: dict[str, Any]) -> np.ndarray:
        array: np.ndarray = message["token_embeddings"]
        return array

    def release(self, message: Any) -> None:
        """Nothing is kept."""


class InArena:
    """The tensor placed in Baton's arena; its descriptor travels."""

    passes_on = True

    def __init__(self) -> None:
        self._reader = ArenaReader()
        self._arena: Arena | None = None

    def encode(self, array: np.ndarray) -> Placed:
        self._arena = self._arena or Arena(2, array.nbytes + (1 << 20))
        placed = self._arena.place(private_table(array.nbytes >> 20), _LEASE_SECONDS)
        if placed is None:
            raise MemoryError("no slot of the arena is free")
        return placed

    def decode(self, message: Placed) -> np.ndarray:
        return from_table(self._reader.open(message))

    def release(self, message: Placed) -> None:
        """Give the slot back."""
        self._reader.release(message)


class Connection:
    """Pickles with their length in front; the buffer for what comes in is kept."""

    def __init__(self, connected: socket.socket) -> None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connected.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._buffer = bytearray(1 << 16)

    def send(self, message: Any) -> None:
        data = pickle.dumps(message, protocol=5)
        if len(data) < _LENGTH.size * 1024:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        else:
            self._socket.sendall(_LENGTH.pack(len(data)))
            self._socket.sendall(data)

    def receive(self) -> Any:
        size = _LENGTH.unpack(self._read(_LENGTH.size))[0]
        return pickle.loads(self._read(size))

    def _read(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        done = 0
        while done < size:
            count = self._socket.recv_into(view[done:])
            if not count:
                raise EOFError
            done += count
        return view

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.receive()


class SocketWire:
    """One kept connection per stage, and a thread for each that waits for the answer."""

    def __init__(self, first_port: int) -> None:
        self._first_port = first_port
        self._connections: dict[int, Connection] = {}
        self._threads = ThreadPoolExecutor(3)

    def post(self, peer: int, graph: str, message: Any) -> Future[dict[str, Any]]:
        return self._threads.submit(self.connection(peer).ask, ("take", graph, message))

    def connection(self, peer: int) -> Connection:
        if peer not in self._connections:
            connected = socket.create_connection(("127.0.0.1", self._first_port + peer))
            self._connections[peer] = Connection(connected)
        return self._connections[peer]


def serve_socket(stage: int, first_port: int, codec: Codec) -> None:
    works = Stage(stage, codec, SocketWire(first_port))

    def converse(connection: Connection) -> None:
        try:
            while True:
                verb, graph, message = connection.receive()
                connection.send(works.go(graph, message) if verb == "go" else works.take(graph, message))
        except (EOFError, ConnectionError):
            return

    with socket.create_server(("127.0.0.1", first_port + stage)) as server:
        while True:
            connected, _ = server.accept()
            threading.Thread(target=converse, args=(Connection(connected),), daemon=True).start()


def main(kind: str, stage: str, first_port: str) -> None:
    end_with_parent()
    if kind == "grpc":
        serve_grpc(int(stage), int(first_port))
    else:
        serve_socket(int(stage), int(first_port), InArena() if kind == "arena_socket" else Pickled())


if __name__ == "__main__":
    main(*sys.argv[1:])
