import json

import pytest

from app.errors import InvalidRequest
from app.messages import Message, ToolCall
from app.prompting.turns import read_conversation

CALL = Message("assistant", "", tool_calls=(ToolCall("c1", "weather", '{"city": "Oslo"}'),))
RESULT = Message("tool", "Sunny", tool_call_id="c1")


def same(text):
    return text


def roles(turns):
    return [turn["role"] for turn in turns]


def test_system_texts_become_one_with_the_profiles_first():
    messages = (Message("user", "a"), Message("system", "late"), Message("system", " "), Message("user", "b"))

    conversation = read_conversation("profile", messages, same)
    assert conversation.system == "profile\n\nlate"
    assert roles(conversation.messages(0, "", True)) == ["system", "user", "user"]


def test_a_tools_message_stays_with_its_call():
    messages = (Message("user", "a"), CALL, RESULT, Message("assistant", "ok"), Message("user", "b"), CALL, RESULT)

    conversation = read_conversation("", messages, same)
    assert roles(conversation.exchanges[0]) == ["user", "assistant", "tool", "assistant"]
    assert roles(conversation.tail) == ["user", "assistant", "tool"]
    assert roles(conversation.messages(1, "", True)) == ["user", "assistant", "tool"]


def test_content_is_text_and_calls_are_openais():
    shown = read_conversation("", (Message("user", "a"), CALL, RESULT), same).tail

    assert shown[1]["content"] == ""
    assert shown[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert shown[2] == {"role": "tool", "content": "Sunny", "tool_call_id": "c1"}


@pytest.mark.parametrize("arguments", ["null", "", "[1]", "{", "[" * 100_000])
def test_arguments_that_are_no_object_become_empty(arguments):
    call = Message("assistant", "", tool_calls=(ToolCall("c", "f", arguments),))

    shown = read_conversation("", (Message("user", "a"), call), same).tail[1]
    assert shown["tool_calls"][0]["function"]["arguments"] == "{}"


def test_escaped_control_tokens_in_arguments_are_cleaned():
    call = Message("assistant", "", tool_calls=(ToolCall("c", "f", '{"a": ["\\u003cX>", {"\\u003cX>": 1}]}'),))

    shown = read_conversation("", (Message("user", "a"), call), lambda text: text.replace("<X>", "-")).tail[1]
    assert json.loads(shown["tool_calls"][0]["function"]["arguments"]) == {"a": ["-", {"-": 1}]}


def test_without_a_system_role_the_text_opens_the_first_user_turn():
    turns = read_conversation("sys", (Message("user", "a"), Message("user", "b")), same).messages(0, "ctx ", False)

    assert [turn["content"] for turn in turns] == ["sys\n\na", "ctx b"]


def test_a_conversation_without_a_user_keeps_its_turns():
    conversation = read_conversation("", (Message("assistant", "hello"),), same)

    assert roles(conversation.tail) == ["assistant"]


def test_only_system_messages_are_refused():
    with pytest.raises(InvalidRequest, match="user"):
        read_conversation("p", (Message("system", "x"),), same)
