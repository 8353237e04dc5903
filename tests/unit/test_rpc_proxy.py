"""What wraps Serve's gRPC handlers, before a real gRPC server and client; Serve itself is played."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest

from app.api.rpc.service import SECONDS_LEFT
from app.deployments import rpc_proxy
from app.protos import baton_pb2 as pb
from app.protos.baton_pb2_grpc import BatonStub

Handler = Callable[..., object]


class Proxy:
    """Plays Serve's proxy: ``answer(request, call)`` is its handler of all RPCs."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.running = 0
        self.left = asyncio.Event()

    def serves(self, service_method: str, streaming_type) -> Handler:
        return self.stream if streaming_type.value == "unary_stream" else self.one

    async def one(self, request, call) -> bytes:
        self.seen = dict(call.invocation_metadata())
        await self.answer(request, call)
        return pb.ChatReply(id="done").SerializeToString()

    async def stream(self, request, call) -> AsyncIterator[bytes]:
        """Let the replica go, as Serve does, only where a cancellation comes while it is waited for."""
        self.seen = dict(call.invocation_metadata())
        self.running += 1
        for number in range(10_000):
            try:
                await self.answer(request, call)
            except asyncio.CancelledError:
                self.running -= 1
                self.left.set()
                raise
            yield pb.ChatChunk(id=str(number), model="x" * 200_000).SerializeToString()

    async def answer(self, request, call) -> None:
        """Do nothing."""


@pytest.fixture
def proxy() -> Proxy:
    return Proxy()


@asynccontextmanager
async def serving(proxy: Proxy, wait_seconds: float = 60.0) -> AsyncIterator[BatonStub]:
    make = rpc_proxy.wrapped(proxy.serves, wait_seconds)
    read = pb.ChatRequest.FromString
    one, stream, analyze = (
        make(f"/baton.v1.Baton/{name}", SimpleNamespace(value=kind))
        for name, kind in (("Chat", "unary_unary"), ("ChatStream", "unary_stream"), ("Analyze", "unary_unary"))
    )
    handlers = {  # as in Serve's proxy, replies are bytes already
        "Chat": grpc.unary_unary_rpc_method_handler(one, read),
        "Analyze": grpc.unary_unary_rpc_method_handler(analyze, pb.AnalyzeRequest.FromString),
        "ChatStream": grpc.unary_stream_rpc_method_handler(stream, read),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("baton.v1.Baton", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield BatonStub(channel)
    finally:
        await server.stop(None)


async def refusal(call) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details(), dict(caught.value.trailing_metadata())


async def test_the_gateway_gets_the_application_the_request_id_and_the_deadline(proxy):
    async with serving(proxy) as baton:
        sent = [
            ("application", "model-x"),
            ("x-request-id", "mine"),
            (SECONDS_LEFT, "999"),
            ("authorization", "Bearer a"),
        ]
        reply = await baton.Chat(pb.ChatRequest(), timeout=5, metadata=sent)
        assert reply.id == "done"
        assert (proxy.seen["application"], proxy.seen["x-request-id"]) == ("pipeline", "mine")
        assert proxy.seen["request_id"] == "mine"
        assert proxy.seen["authorization"] == "Bearer a"
        assert 3 < float(proxy.seen[SECONDS_LEFT]) <= 5
        await baton.Chat(pb.ChatRequest(), metadata=[("x-request-id", "not fit"), (SECONDS_LEFT, "999")])
        assert proxy.seen["x-request-id"].startswith("req-")
        assert SECONDS_LEFT not in proxy.seen


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_over_the_limit_goes_no_further(proxy, stream):
    request = pb.ChatRequest(model="x" * (rpc_proxy.MAX_REQUEST_BYTES - 1))
    async with serving(proxy) as baton:
        call = baton.ChatStream(request).read() if stream else baton.Chat(request)
        code, _, trailing = await refusal(call)
    assert (code, trailing["baton-code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "payload_too_large")
    assert proxy.seen == {}


@pytest.mark.parametrize(
    ("own", "code", "words"),
    [
        (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, "stopped before it answered"),
        (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE, "No replica"),
        (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, "No replica"),
    ],
)
async def test_what_serve_says_by_itself_is_said_in_our_words(proxy, own, code, words):
    async def answer(request, call):
        call.set_code(own)
        call.set_details("ActorDiedError: a long traceback")

    proxy.answer = answer
    async with serving(proxy) as baton:
        found, details, trailing = await refusal(baton.Chat(pb.ChatRequest()))
    assert (found, trailing["baton-code"], trailing["retry-after"]) == (code, "stage_unavailable", "5")
    assert words in details


async def test_an_rpc_of_an_application_goes_there_and_says_when_it_is_not_deployed(proxy):
    async def answer(request, call):
        call.set_code(grpc.StatusCode.NOT_FOUND)

    proxy.answer = answer
    async with serving(proxy) as baton:
        code, details, trailing = await refusal(baton.Analyze(pb.AnalyzeRequest()))
    assert proxy.seen["application"] == "analyze"
    assert (code, trailing["baton-code"]) == (grpc.StatusCode.NOT_FOUND, "not_found")
    assert "'analyze' is not deployed" in details


async def test_what_the_gateway_says_stays(proxy):
    async def answer(request, call):
        call.set_code(grpc.StatusCode.NOT_FOUND)
        call.set_details("There is no collection.")
        call.set_trailing_metadata([("baton-code", "collection_not_found")])

    proxy.answer = answer
    async with serving(proxy) as baton:
        assert (await refusal(baton.Chat(pb.ChatRequest())))[1] == "There is no collection."
        assert (await refusal(baton.ChatStream(pb.ChatRequest()).read()))[1] == "There is no collection."


async def test_a_call_that_no_replica_takes_is_given_up(proxy, monkeypatch):
    waiting = asyncio.Event()

    async def answer(request, call):
        try:
            await waiting.wait()
        except asyncio.CancelledError:  # as Serve turns it into a status
            call.set_code(grpc.StatusCode.CANCELLED)

    def drop() -> bool:
        waiting.set()
        return True

    proxy.answer = answer
    monkeypatch.setattr(rpc_proxy, "drop_unless_assigned", drop)
    async with serving(proxy, wait_seconds=0.05) as baton:
        code, details, _ = await refusal(baton.Chat(pb.ChatRequest()))
    assert (code, "No replica" in details) == (grpc.StatusCode.UNAVAILABLE, True)


@pytest.mark.parametrize("pause", [0.0, 0.5])
async def test_a_stream_that_is_left_ends_also_while_its_caller_reads_nothing(proxy, pause):
    """With a pause, what waits for the caller has filled the buffers between."""

    async def answer(request, call):
        await asyncio.sleep(0.01)

    proxy.answer = answer
    async with serving(proxy) as baton:
        call = baton.ChatStream(pb.ChatRequest())
        await call.read()
        await asyncio.sleep(pause)
        assert proxy.running == 1
        call.cancel()
        async with asyncio.timeout(2):
            await proxy.left.wait()
