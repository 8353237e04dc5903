"""The assembler: system prompt, history, passages and question, within the model's window.

Order: one system message (the profile's text, then the caller's system messages), the history unchanged, then one user
turn with the passages and the question. What requests share stands in front, for the engine's prefix cache.

When it does not all fit, passages go first (lowest rank first), then the oldest exchanges; the system prompt and the
question never do. A ``max_tokens`` that does not fit beside them is refused, not shortened; without one the answer may
take what is left, up to ``default_max_tokens``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from app.config.answers import AssemblerConfig, ModelWindow
from app.errors import ConfigError, ContextLengthExceeded, InvalidRequest, ModelNotFound, bounded
from app.messages import AssembleRequest, Prompt, Retrieved
from app.prompting.frame import context_text, passage_block
from app.prompting.tokenizer import ChatTokenizer, load
from app.prompting.turns import Conversation, EngineMessage, images_in, read_conversation, with_images


class Assembler:
    """Builds prompts for the models named in ``models``. Deterministic; ``run`` is thread-safe."""

    name = "assembler"

    def __init__(self, models: Mapping[str, ModelWindow], settings: AssemblerConfig) -> None:
        self._models = dict(models)
        self._settings = settings
        self._tokenizers: dict[str, ChatTokenizer] = {}

    def start(self) -> None:
        """Load the tokenizers, each once. Raises :class:`ConfigError` naming the model and the path."""
        loaded: dict[tuple[str, str | None], ChatTokenizer] = {}
        for name, model in self._models.items():
            key = (model.tokenizer, model.chat_template)
            if key not in loaded:
                loaded[key] = load(*key, local_files_only=model.local_files_only)
            self._tokenizers[name] = loaded[key]

    def configure(self, settings: AssemblerConfig) -> None:
        """Take new settings; requests that are under way keep the old ones."""
        if not isinstance(settings, AssemblerConfig):
            raise ConfigError(f"the assembler takes an AssemblerConfig, not {type(settings).__name__}", self.name)
        self._settings = settings

    def run(self, request: AssembleRequest, payload: Retrieved | None = None) -> Prompt:
        """Return the prompt for one request; ``payload`` holds the passages, if retrieval was on.

        Raises :class:`ContextLengthExceeded` naming the numbers, :class:`InvalidRequest` when the model's template
        refuses the turns, :class:`ModelNotFound`.
        """
        tokenizer = self.tokenizer(request.model)
        _check_tools(request, tokenizer)
        conversation = read_conversation(request.system_prompt, request.messages, tokenizer.neutraliser.clean)
        model = self._models[request.model]
        window = min(model.context_tokens, request.context_tokens or model.context_tokens)
        draft = _Draft(request, conversation, tokenizer, self._settings, (window, model.image_tokens))
        return draft.fit(_read_passages(request, payload))

    def tokenizer(self, model: str) -> ChatTokenizer:
        """Return the tokenizer of a started model. Raises :class:`ModelNotFound`."""
        found = self._tokenizers.get(model)
        if found is None:
            raise ModelNotFound(f"no model is called {bounded(model)}", self.name, "model")
        return found

    def close(self) -> None:
        """Release the tokenizers."""
        self._tokenizers = {}


@dataclass(frozen=True, slots=True)
class _Passage:
    row: int
    source: str
    text: str


class _Draft:
    """One request while it is fitted into the window."""

    def __init__(
        self,
        request: AssembleRequest,
        conversation: Conversation,
        tokenizer: ChatTokenizer,
        settings: AssemblerConfig,
        sizes: tuple[int, int],
    ) -> None:
        """``sizes``: the window, and what one image takes of it, in tokens."""
        self._request = request
        self._conversation = conversation
        self._tokenizer = tokenizer
        self._settings = settings
        self._window, self._image_tokens = sizes
        self._answer = settings.min_answer_tokens if request.max_tokens is None else request.max_tokens
        self._budget = self._window - self._answer

    def fit(self, passages: list[_Passage]) -> Prompt:
        """Return the prompt with as much history, then as many passages as fit."""
        empty = self._no_passages() if self._request.retrieval else ""
        tokens = self._count(0, empty)
        if tokens > self._budget:
            cut = self._turns_to_cut(empty)
            return self._prompt(cut, empty, self._count(cut, empty), rows=(), cut_passages=len(passages))
        blocks = [self._block(mark, passage) for mark, passage in enumerate(passages, 1)]
        kept = self._passages_to_keep(blocks, self._budget - tokens)
        while kept:
            context = self._context(blocks[:kept])
            tokens_with_passages = self._count(0, context)
            if tokens_with_passages <= self._budget:
                rows = tuple(passage.row for passage in passages[:kept])
                return self._prompt(0, context, tokens_with_passages, rows, len(passages) - kept)
            kept -= 1
        return self._prompt(0, empty, tokens, rows=(), cut_passages=len(passages))

    def _prompt(self, cut: int, context: str, tokens: int, rows: tuple[int, ...], cut_passages: int) -> Prompt:
        left = self._window - tokens
        limit = self._request.max_tokens
        return Prompt(
            messages=tuple(with_images(message) for message in self._messages(cut, context)),
            tokens=tokens,
            max_tokens=min(left, self._settings.default_max_tokens) if limit is None else limit,
            rows=rows,
            cut_passages=cut_passages,
            cut_turns=cut,
        )

    def _turns_to_cut(self, context: str) -> int:
        """Return the smallest number of oldest exchanges whose loss makes the rest fit, found by bisection."""
        low, high = 0, len(self._conversation.exchanges)
        least = self._count(high, context)
        if least > self._budget:
            raise self._too_long(least)
        while high - low > 1:
            middle = (low + high) // 2
            if self._count(middle, context) <= self._budget:
                high = middle
            else:
                low = middle
        return high

    def _passages_to_keep(self, blocks: list[str], room: int) -> int:
        room = min(room, self._settings.passage_tokens)
        for kept, block in enumerate(blocks):
            room -= self._tokenizer.count_text(block)
            if room < 0:
                return kept
        return len(blocks)

    def _count(self, cut: int, context: str) -> int:
        """Return the prompt's tokens, images by what the model makes of one; above the window any number above it."""
        messages = self._messages(cut, context)
        rendered = self._tokenizer.render(messages, self._request.tools)
        return self._tokenizer.count(rendered, self._window) + images_in(messages) * self._image_tokens

    def _messages(self, cut: int, context: str) -> list[EngineMessage]:
        return self._conversation.messages(cut, context, self._tokenizer.takes_system)

    def _block(self, mark: int, passage: _Passage) -> str:
        clean = self._tokenizer.neutraliser.clean
        return passage_block(mark, clean(passage.source), clean(passage.text))

    def _context(self, blocks: list[str]) -> str:
        return context_text(self._settings.context_header, blocks, self._settings.question_header)

    def _no_passages(self) -> str:
        return context_text(self._settings.no_passages_text, [], self._settings.question_header)

    def _too_long(self, tokens: int) -> ContextLengthExceeded:
        prompt = f"{tokens} tokens" if tokens <= self._window else f"more than {self._window} tokens"
        asked = (
            f"at least {self._answer} are kept for the answer"
            if self._request.max_tokens is None
            else f"max_tokens asks for {self._answer} more"
        )
        whose = "profile" if self._request.context_tokens == self._window else "model"
        return ContextLengthExceeded(
            f"The {whose}'s context window is {self._window} tokens; system prompt and question take {prompt} and "
            f"{asked}. Shorten the messages or lower max_tokens.",
            "assembler",
            "messages",
        )


def _read_passages(request: AssembleRequest, payload: Retrieved | None) -> list[_Passage]:
    """Return the passages that may be shown, best first: without those the guardrail refused, redacted where it did."""
    if payload is None or payload.passages.num_rows == 0:
        return []
    head = payload.passages.slice(0, payload.top_k).select(["text", "source"]).to_pydict()
    blocked = frozenset(request.blocked_rows)
    return [
        _Passage(row, source or "", request.passage_texts.get(row, text))
        for row, (text, source) in enumerate(zip(head["text"], head["source"], strict=True))
        if row not in blocked
    ]


def _check_tools(request: AssembleRequest, tokenizer: ChatTokenizer) -> None:
    """Refuse tools whose texts hold control tokens: they reach the engine as they are."""
    for place, tool in enumerate(request.tools):
        if tokenizer.neutraliser.finds(json.dumps(tool, ensure_ascii=False)):
            raise InvalidRequest("A tool must not contain control tokens of the model.", "assembler", f"tools[{place}]")
