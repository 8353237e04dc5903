"""The chat template renders plain chats as the model's own does, and tools and empty content sensibly."""

import json
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

import app.ops

OWN = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OURS = (Path(app.ops.__path__[0]) / "models_chat_template.jinja").read_text()


def render(template, messages, **variables):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(template).render(messages=messages, **variables)


def user(content):
    return {"role": "user", "content": content}


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize(
    "messages",
    [
        [user("hi")],
        [{"role": "system", "content": " short \n"}, user("\nhi ")],
        [user("a"), {"role": "assistant", "content": "b\n\n"}, user("")],
        [user("{{ 7 * 7 }} {% if %} <b> & 你好")],
        [user("a"), {"role": "system", "content": "late"}],
    ],
)
def test_plain_chats_render_as_with_the_models_own_template(messages, prompt):
    assert render(OURS, messages, add_generation_prompt=prompt) == render(OWN, messages, add_generation_prompt=prompt)


def test_tool_calls_and_results():
    call = {"id": "1", "type": "function", "function": {"name": "price", "arguments": '{"id": 7}'}}
    other = {"function": {"name": "stock", "arguments": {"城": "北京"}}}
    messages = [
        user("how much?"),
        {"role": "assistant", "content": None, "tool_calls": [call, other]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]
    assert render(OURS, messages, add_generation_prompt=True).split("how much?<|im_end|>\n")[1] == (
        '<|im_start|>assistant\n<tool_call>\n{"name": "price", "arguments": {"id": 7}}\n</tool_call>\n'
        '<tool_call>\n{"name": "stock", "arguments": {"城": "北京"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("first", [{"role": "system", "content": "Be brief."}, user("hi")])
def test_tools_are_named_once_in_the_system_turn(first):
    tool = {"type": "function", "function": {"name": "price", "parameters": {}}}
    text = render(OURS, [first, user("hi")], tools=[tool])
    assert text.startswith("<|im_start|>system\n")
    assert json.dumps(tool) in text.split("<|im_end|>")[0]
    assert text.count(json.dumps(tool)) == 1


def test_missing_empty_and_split_content():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    text = render(OURS, [user(parts), {"role": "assistant"}, user(None)])
    assert text.endswith(
        "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\n<|im_end|>\n"
    )
