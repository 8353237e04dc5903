"""The model's own tokenizer and chat template, as the engine uses them, without the weight of torch.

A folder with ``tokenizer.json`` is read directly (importing transformers would import torch into the gateway);
anything else goes through transformers, from local files only.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import ConfigError, InvalidRequest, bounded
from app.prompting.control_tokens import Neutraliser, is_control
from app.prompting.template import Template, TemplateError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Long texts are counted in slices, so that one far over the window is given up early.
_SLICE_CHARS = 16_384
_CACHED_COUNTS = 16_384
_PROBE = "probe-7f3a"
#: What a tokenizer may consist of in a model's repository.
FILES = ("tokenizer*", "special_tokens_map.json", "*.jinja", "vocab*", "merges.txt", "config.json")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a model folder says: the tokenizer, its chat templates by name, the token names that templates use."""

    tokenizer: Tokenizer
    templates: Mapping[str, str]
    names: Mapping[str, str]


class ChatTokenizer:
    """Counts tokens of texts and of whole conversations. Thread-safe once built."""

    def __init__(self, files: TokenizerFiles, where: str) -> None:
        self._tokenizer = files.tokenizer
        self._template = Template(files.templates, files.names)
        added = files.tokenizer.get_added_tokens_decoder()
        control = {number: token for number, token in added.items() if is_control(token.content, token.special)}
        self._control_ids = frozenset(control)
        spans = self._control_spans if any(token.normalized for token in control.values()) else None
        self.neutraliser = Neutraliser((token.content for token in control.values()), spans)
        self._counts = _CountCache(_CACHED_COUNTS)
        self._splitter = _splitter([token.content for token in control.values()])
        self.content_as_parts = not self._shows(as_parts=False)
        if self.content_as_parts and not self._shows(as_parts=True):
            raise ConfigError(f"the chat template of {bounded(where)} does not show a user message", "assembler")
        self.takes_system = self._shows_system()

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the prompt text as the engine will build it from OpenAI messages.

        Raises :class:`InvalidRequest` when the template refuses the order of the turns.
        """
        try:
            return self._template.render(messages, tools, as_parts=self.content_as_parts)
        except TemplateError as error:
            raise InvalidRequest(
                f"The model's chat template refuses these messages: {bounded(str(error))}.", "assembler", "messages"
            ) from None

    def count(self, rendered: str, limit: int) -> int:
        """Return the number of tokens of a rendered prompt, or any number above ``limit`` when there are more."""
        segments = self._splitter(rendered)
        total = len(segments) - 1
        for segment in segments:
            total += self._count_segment(segment, limit - total)
            if total > limit:
                break
        return total

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a piece of text, from the cache where it was counted before."""
        return self._count_segment(text, len(text) + 1)

    def control_tokens(self, rendered: str) -> int:
        """Return how many control tokens the tokenizer sees in ``rendered``."""
        return sum(number in self._control_ids for number in self.encode(rendered))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``, nothing added."""
        return list(self._encode(text).ids)

    def encode_with_ends(self, text: str) -> tuple[list[int], list[int]]:
        """Return the token ids of ``text`` and, for each, the character at which it ends."""
        encoding = self._encode(text)
        return list(encoding.ids), [end for _, end in encoding.offsets]

    def _count_segment(self, text: str, limit: int) -> int:
        total = 0
        for piece in _pieces(text):
            key = hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            count = self._counts.get(key)
            if count is None:
                count = len(self._encode(piece).ids)
                self._counts.put(key, count)
            total += count
            if total > limit:
                break
        return total

    def _encode(self, text: str) -> Any:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _control_spans(self, text: str) -> list[tuple[int, int]]:
        encoding = self._encode(text)
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        return [span for number, span in pairs if number in self._control_ids]

    def _shows(self, as_parts: bool) -> bool:
        try:
            return _PROBE in self._template.render([{"role": "user", "content": _PROBE}], (), as_parts=as_parts)
        except TemplateError:
            return False

    def _shows_system(self) -> bool:
        messages = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "hello"}]
        try:
            return _PROBE in self._template.render(messages, (), as_parts=self.content_as_parts)
        except TemplateError:
            return False


class _CountCache:
    """Token counts by digest of the text, least recently used first out. Holds no text."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._lock = threading.Lock()
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def get(self, key: bytes) -> int | None:
        with self._lock:
            count = self._counts.get(key)
            if count is not None:
                self._counts.move_to_end(key)
            return count

    def put(self, key: bytes, count: int) -> None:
        with self._lock:
            self._counts[key] = count
            if len(self._counts) > self._entries:
                self._counts.popitem(last=False)


def load(path: str, template_file: str | None = None, *, local_files_only: bool = True) -> ChatTokenizer:
    """Load a model's tokenizer from a folder, from the local cache or, unless ``local_files_only``, from a model hub.

    Raises :class:`ConfigError` naming the path when there is none, or no chat template.
    """
    try:
        folder = Path(path) if local_files_only or _looks_like_a_path(path) else _download(path)
        files = _read_folder(folder) if (folder / "tokenizer.json").is_file() else _read_with_transformers(path)
        if template_file is not None:
            files = TokenizerFiles(files.tokenizer, {"default": Path(template_file).read_text("utf-8")}, files.names)
    except ConfigError:
        raise
    except Exception as error:
        reason = bounded(f"{type(error).__name__}: {error}", 200)
        raise ConfigError(f"no tokenizer could be loaded from {bounded(path, 200)}: {reason}", "assembler") from error
    if "default" not in files.templates:
        raise ConfigError(f"the tokenizer in {bounded(path, 200)} has no chat template", "assembler")
    files.tokenizer.no_truncation()
    files.tokenizer.no_padding()
    return ChatTokenizer(files, path)


def _looks_like_a_path(path: str) -> bool:
    return path.startswith((".", "~")) or Path(path).is_absolute() or Path(path).exists()


def _download(model: str) -> Path:
    """Fetch the tokenizer's files of a model, and not its weights; return their folder."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, allow_patterns=list(FILES)))


def _read_folder(folder: Path) -> TokenizerFiles:
    from tokenizers import Tokenizer

    config = _read_json(folder / "tokenizer_config.json")
    names = _token_names({**_read_json(folder / "special_tokens_map.json"), **config})
    templates = _named_templates(config.get("chat_template"))
    file = folder / "chat_template.jinja"
    if file.is_file():
        templates["default"] = file.read_text("utf-8")
    return TokenizerFiles(Tokenizer.from_file(str(folder / "tokenizer.json")), templates, names)


def _read_with_transformers(path: str) -> TokenizerFiles:
    if Path(path).is_absolute() or path.startswith("."):
        raise ConfigError(f"{bounded(path, 200)} is no folder with a tokenizer.json", "assembler")
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(path, local_files_only=True)
    if not loaded.is_fast:
        raise ConfigError(f"the tokenizer in {bounded(path, 200)} has no fast form (tokenizer.json)", "assembler")
    return TokenizerFiles(
        loaded.backend_tokenizer, _named_templates(loaded.chat_template), _token_names(loaded.special_tokens_map)
    )


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def _named_templates(raw: Any) -> dict[str, str]:
    """Read the three forms in which tokenizer files hold templates: one text, a list of named ones, a mapping."""
    if isinstance(raw, str):
        return {"default": raw}
    if isinstance(raw, list):
        return {entry["name"]: entry["template"] for entry in raw}
    return dict(raw or {})


def _token_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of ``bos_token``, ``eos_token`` and the like, which templates refer to by name."""
    names = {key: value for key, value in config.items() if key.endswith("_token")}
    texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in names.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _splitter(tokens: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that cuts a rendered prompt at its control tokens.

    The tokenizer does the same first, so the pieces can be counted (and cached) one by one.
    """
    literals = sorted((re.escape(token) for token in tokens), key=len, reverse=True)
    return re.compile("|".join(literals)).split if literals else lambda text: [text]


def _pieces(text: str) -> list[str]:
    """Cut a long text into slices, before a blank where there is one: words are not cut, so counts add up."""
    pieces = []
    start = 0
    while len(text) - start > _SLICE_CHARS:
        blank = text.rfind(" ", start + 1, start + _SLICE_CHARS)
        end = blank if blank > start else start + _SLICE_CHARS
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return [piece for piece in pieces if piece]
