"""Requests from protobuf to the API's JSON, and replies back. Names agree, so most fields pass as they are.

Text that should be JSON and is not passes as text: the API then refuses it as it refuses any wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from app.protos import baton_pb2

M = TypeVar("M", bound=Message)

_TOOL_CHOICES = frozenset({"none", "auto", "required"})


def fields_of(request: Message) -> dict[str, Any]:
    """Return the fields that are set."""
    return MessageToDict(request, preserving_proto_field_name=True)


def chat_body(request: baton_pb2.ChatRequest) -> dict[str, Any]:
    """Return the body of ``/v1/chat/completions``."""
    body = fields_of(request)
    body["messages"] = [_turn(turn) for turn in body.get("messages", ())]
    if "seed" in body:
        body["seed"] = request.seed  # JSON's form of an int64 is text
    if "response_format" in body:
        body["response_format"] = _parsed(request.response_format)
    if "tools" in body:
        body["tools"] = [_tool(tool) for tool in body["tools"]]
    if (choice := body.get("tool_choice")) is not None and choice not in _TOOL_CHOICES:
        body["tool_choice"] = {"type": "function", "function": {"name": choice}}
    return _with_filter(body)


def retrieve_body(request: baton_pb2.RetrieveRequest) -> dict[str, Any]:
    """Return the body of ``/v1/retrieve``."""
    return _with_filter(fields_of(request))


def parse_reply(body: Mapping[str, Any], reply: M) -> M:
    """Fill ``reply`` from the API's JSON; what it has no field for is left out."""
    return ParseDict(dict(body), reply, ignore_unknown_fields=True)


def _with_filter(body: dict[str, Any]) -> dict[str, Any]:
    rag = body.get("rag", {})
    if "filter" in rag:
        rag["filter"] = _parsed(rag["filter"])
    return body


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    parts = turn.pop("parts", None)
    if parts is not None:
        first = [{"text": turn["content"]}] if turn.get("content") else []
        turn["content"] = [_part(part) for part in first + parts]
    return turn


def _part(part: Mapping[str, str]) -> dict[str, Any]:
    if "image_url" in part:
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return {"type": "text", "text": part.get("text", "")}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if "parameters" in tool:
        tool["parameters"] = _parsed(tool["parameters"])
    return {"type": "function", "function": tool}


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
