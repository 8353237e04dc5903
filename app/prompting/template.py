"""Chat templates, rendered in jinja's sandbox as transformers renders them. Messages are data, never template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


class TemplateError(Exception):
    """The template raised an error about the messages, in its own words."""


class Template:
    """The chat templates of one model, compiled; ``names`` are token texts such as ``bos_token``."""

    def __init__(self, texts: Mapping[str, str], names: Mapping[str, str]) -> None:
        environment = _environment()
        self._compiled = {name: environment.from_string(text) for name, text in texts.items()}
        self._names = dict(names)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], as_parts: bool) -> str:
        """Return the prompt for OpenAI ``messages``, ending where the assistant's turn begins."""
        import jinja2

        compiled = self._compiled.get("tool_use") if tools else None
        try:
            text: str = (compiled or self._compiled["default"]).render(
                messages=[_for_template(message, as_parts) for message in messages],
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=True,
                **self._names,
            )
            return text
        except (jinja2.TemplateError, TypeError) as error:
            raise TemplateError(str(error)) from error


def _for_template(message: Mapping[str, Any], as_parts: bool) -> dict[str, Any]:
    """Return the message as the engine hands it to the template: arguments parsed, content as text or as parts."""
    shown = dict(message)
    if as_parts:
        shown["content"] = [{"type": "text", "text": message["content"]}]
    if "tool_calls" in message:
        shown["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return shown


def _environment() -> Any:
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """``{% generation %}`` marks training targets; for a prompt its body is all that matters."""

        tags = {"generation"}  # noqa: RUF012 - jinja's own attribute

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, loopcontrols],
        autoescape=False,
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
