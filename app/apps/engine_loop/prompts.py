"""Prompts of the engine loop: assembled like the pipeline's, and tokenised here, since the engine takes tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.apps.engine_loop.splicing import Part, cut
from app.config.answers import AssemblerConfig, ModelWindow
from app.messages import AssembleRequest, Message, Retrieved
from app.prompting.frame import passage_block
from app.stages.assembler import Assembler


@dataclass(frozen=True, slots=True)
class Passage:
    """Text that the caller found for the question."""

    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """What a prompt is made of. ``max_tokens`` None: what is left of the window, up to the default."""

    system_prompt: str
    messages: tuple[Message, ...]
    passages: tuple[Passage, ...] = ()
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LoopPrompt:
    """The prompt in tokens; ``parts`` are the same tokens, cut where system text, turns and passages begin and end."""

    tokens: tuple[int, ...]
    parts: tuple[Part, ...]
    max_tokens: int


class LoopAssembler:
    """Stage ``assembler`` of the engine loop: the pipeline's own, then the model's chat template and tokenizer."""

    name = "assembler"

    def __init__(self, model: str, window: ModelWindow) -> None:
        self._model = model
        self._assembler = Assembler({model: window}, AssemblerConfig())

    def start(self) -> None:
        """Load the tokenizer. Raises :class:`app.errors.ConfigError`."""
        self._assembler.start()

    def configure(self, settings: AssemblerConfig) -> None:
        """Take new settings."""
        self._assembler.configure(settings)

    def close(self) -> None:
        """Release the tokenizer."""
        self._assembler.close()

    def run(self, request: PromptRequest, payload: None = None) -> LoopPrompt:
        """Return the prompt. Raises what :meth:`app.stages.assembler.Assembler.run` raises."""
        retrieved = _as_retrieved(request.passages) if request.passages else None
        assembled = self._assembler.run(
            AssembleRequest(
                model=self._model,
                system_prompt=request.system_prompt,
                messages=request.messages,
                max_tokens=request.max_tokens,
                retrieval=retrieved is not None,
            ),
            retrieved,
        )
        tokenizer = self._assembler.tokenizer(self._model)
        rendered = tokenizer.render(assembled.messages)
        tokens, ends = tokenizer.encode_with_ends(rendered)
        clean = tokenizer.neutraliser.clean
        bodies = [_body(clean(request.passages[row].text)) for row in assembled.rows]
        spans = _spans(rendered, [*_contents(assembled.messages), *bodies])
        return LoopPrompt(tuple(tokens), cut(tokens, ends, spans), assembled.max_tokens)


def _as_retrieved(passages: Sequence[Passage]) -> Retrieved:
    columns = {"text": [found.text for found in passages], "source": [found.source for found in passages]}
    return Retrieved(pa.table(columns), top_k=len(passages))


def _contents(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what other prompts may hold as well: the system text and the old turns, not the question."""
    return [str(message["content"]) for message in messages[:-1]]


def _body(text: str) -> str:
    """Return a passage as it stands in the prompt, without its mark and source: those differ from prompt to prompt."""
    return passage_block(1, "", text).partition("\n")[2].strip()


def _spans(rendered: str, texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return where the texts stand, in order. A template may change a text: what is not found is no part of its own."""
    spans, place = [], 0
    for text in texts:
        start = rendered.find(text, place) if text else -1
        if start >= 0:
            place = start + len(text)
            spans.append((start, place))
    return spans
