"""Conversations as the assembler sees them: one system text, old exchanges that may be cut, and the question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import InvalidRequest
from app.messages import Message

Clean = Callable[[str], str]
EngineMessage = dict[str, Any]
#: Where a message keeps its images while the prompt is put together.
_IMAGES = "_images"  # a name that no chat template looks for


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in OpenAI's JSON, control tokens already broken up.

    ``exchanges`` are the old turns, oldest first, each from one user message to the next, so that a tool's message
    never loses its call. ``tail`` runs from the last user message (the question) to the end and is never cut.
    """

    system: str
    exchanges: tuple[tuple[EngineMessage, ...], ...]
    tail: tuple[EngineMessage, ...]

    def messages(self, cut: int, context: str, takes_system: bool) -> list[EngineMessage]:
        """Return the messages without the ``cut`` oldest exchanges, ``context`` put before the question."""
        tail = [{**self.tail[0], "content": context + self.tail[0]["content"]}, *self.tail[1:]]
        turns = [message for exchange in self.exchanges[cut:] for message in exchange] + tail
        if not self.system:
            return turns
        if takes_system:
            return [{"role": "system", "content": self.system}, *turns]
        return _with_system_in_first_user_turn(self.system, turns)


def read_conversation(system_prompt: str, messages: Sequence[Message], clean: Clean) -> Conversation:
    """Sort a request's messages.

    The profile's system prompt comes first, then the caller's system messages in their order, joined by blank lines
    into one text: the longest part that requests share stays in front.
    Raises :class:`InvalidRequest` when nothing but system messages was sent.
    """
    systems = [message.content for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if not turns:
        raise InvalidRequest("messages must hold at least one message of a user.", "assembler", "messages")
    groups = [tuple(_engine_message(message, clean) for message in group) for group in _exchanges(turns)]
    question = max((place for place, group in enumerate(groups) if group[0]["role"] == "user"), default=len(groups) - 1)
    return Conversation(
        system="\n\n".join(clean(text) for text in (system_prompt, *systems) if text.strip()),
        exchanges=tuple(groups[:question]),
        tail=tuple(message for group in groups[question:] for message in group),
    )


def _exchanges(turns: Sequence[Message]) -> Iterator[list[Message]]:
    group: list[Message] = []
    for message in turns:
        if message.role == "user" and group:
            yield group
            group = []
        group.append(message)
    yield group


def _engine_message(message: Message, clean: Clean) -> EngineMessage:
    """Return OpenAI's JSON for a turn. Content is text as yet: many templates add it up without looking.

    Images stand beside it until :func:`with_images` joins both.
    """
    shown: EngineMessage = {"role": message.role, "content": clean(message.content)}
    if message.images:
        shown[_IMAGES] = message.images
    if message.name is not None:
        shown["name"] = clean(message.name)
    if message.tool_call_id is not None:
        shown["tool_call_id"] = clean(message.tool_call_id)
    if message.tool_calls:
        shown["tool_calls"] = [
            {
                "id": clean(call.id),
                "type": "function",
                "function": {"name": clean(call.name), "arguments": _object_text(call.arguments, clean)},
            }
            for call in message.tool_calls
        ]
    return shown


def images_in(messages: Sequence[EngineMessage]) -> int:
    """Return how many images the messages hold."""
    return sum(len(message.get(_IMAGES, ())) for message in messages)


def with_images(message: EngineMessage) -> EngineMessage:
    """Return the message as the engine takes it: with images, each a part in front of the text."""
    if _IMAGES not in message:
        return message
    plain = {key: value for key, value in message.items() if key != _IMAGES}
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": uri}} for uri in message[_IMAGES]]
    return {**plain, "content": [*parts, *([{"type": "text", "text": text}] if (text := plain["content"]) else [])]}


def _object_text(arguments: str, clean: Clean) -> str:
    """Return a call's arguments as the JSON text of an object, control tokens broken up behind any escapes too.

    What is no object becomes ``{}``, as in the engine: an old turn must not sink a conversation.
    """
    try:
        parsed = json.loads(arguments)
        return json.dumps(_clean_values(parsed, clean), ensure_ascii=False) if isinstance(parsed, dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


def _clean_values(value: Any, clean: Clean) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean_values(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(key): _clean_values(item, clean) for key, item in value.items()}
    return value


def _with_system_in_first_user_turn(system: str, turns: list[EngineMessage]) -> list[EngineMessage]:
    """Serve templates without a system role: the text opens the first user turn."""
    for place, message in enumerate(turns):
        if message["role"] == "user":
            merged: Mapping[str, Any] = {**message, "content": f"{system}\n\n{message['content']}"}
            return [*turns[:place], dict(merged), *turns[place + 1 :]]
    return [{"role": "user", "content": system}, *turns]
