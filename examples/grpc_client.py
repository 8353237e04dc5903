"""Asks a Baton over gRPC: ``python -m examples.grpc_client 127.0.0.1:9000 "What does the guardrail do?"``.

It needs the packages grpcio and protobuf, and what protoc makes of app/protos/baton.proto (committed beside it). A key
goes into BATON_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import sys

import grpc

from app.protos.baton_pb2 import ChatMessage, ChatRequest, Rag, RetrieveRequest
from app.protos.baton_pb2_grpc import BatonStub


def main(target: str, question: str, collection: str = "") -> int:
    """Print the answer as it comes and, with a collection, the passages first; return 1 after a refusal."""
    key = os.environ.get("BATON_API_KEY")
    metadata = [("authorization", f"Bearer {key}")] if key else []
    rag = Rag(collections=[collection]) if collection else None
    with grpc.insecure_channel(target) as channel:
        baton = BatonStub(channel)
        try:
            if rag:
                for passage in baton.Retrieve(RetrieveRequest(query=question, rag=rag), 30, metadata=metadata).data:
                    print(f"{passage.score:.3f}  {passage.id}")
            request = ChatRequest(messages=[ChatMessage(role="user", content=question)], max_tokens=64, rag=rag)
            for chunk in baton.ChatStream(request, timeout=60, metadata=metadata):
                for choice in chunk.choices:
                    print(choice.delta.content, end="", flush=True)
            print()
        except grpc.RpcError as refused:
            told = dict(refused.trailing_metadata())
            print(f"{refused.code().name} ({told.get('baton-code')}): {refused.details()}", file=sys.stderr)
            return 1
    return 0


def _arguments() -> list[str]:
    parser = argparse.ArgumentParser(prog="python -m examples.grpc_client", description="Ask a Baton over gRPC.")
    parser.add_argument("target", help="host and port, like 127.0.0.1:9000")
    parser.add_argument("question", help="the question, in quotes")
    parser.add_argument("collection", nargs="?", default="", help="the collection to retrieve from")
    found = parser.parse_args()
    return [found.target, found.question, found.collection]


if __name__ == "__main__":
    sys.exit(main(*_arguments()))
