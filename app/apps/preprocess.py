"""The step ``preprocess``: tells a text's language, normalises it, and cuts it at a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.apps.messages import Prepared, PreprocessRequest
from app.apps.wording import has_words, normalised_start
from app.config.embedder import looks_like_a_path
from app.errors import ConfigError, StageUnavailable, bounded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STAGE = "preprocess"
#: No language has longer words in tokens; what lies beyond is not looked at, so megabytes cost as much as a page.
_CHARS_PER_TOKEN = 32
#: The language is plain from this much.
_TELLING_CHARS = 4000
_UNDETERMINED = "und"


class Preprocessor:
    """Needs a ``tokenizer.json`` in a folder, or in a repository of the hub; no weights, no torch."""

    def __init__(self, tokenizer: str, local_files_only: bool) -> None:
        self._source = tokenizer
        self._local_files_only = local_files_only
        self._tokenizer: Tokenizer | None = None
        self._identifier: Any = None

    def start(self) -> None:
        """Load tokenizer and language model. Raises :class:`ConfigError` naming the source."""
        from tokenizers import Tokenizer

        path = self._path()
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exceptions
            raise self._fault(f"holds a tokenizer.json that cannot be read ({type(error).__name__})") from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._identifier = _language_identifier()
        self._tokenizer = tokenizer

    def run(self, requests: Sequence[PreprocessRequest]) -> list[Prepared]:
        """Prepare texts."""
        return [self._prepared(request) for request in requests]

    def _prepared(self, request: PreprocessRequest) -> Prepared:
        if self._tokenizer is None:
            raise StageUnavailable("The application has not started.", STAGE, None, 1)
        text = normalised_start(request.text, request.max_tokens * _CHARS_PER_TOKEN)
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        tokens = len(encoded.ids)
        if tokens > request.max_tokens:
            tokens = request.max_tokens
            text = text[: encoded.offsets[tokens - 1][1]].rstrip()
        return Prepared(text, self._language(text), tokens)

    def _language(self, text: str) -> str:
        telling = text[:_TELLING_CHARS]
        if not has_words(telling, 1) or not any(map(str.isalpha, telling)):
            return _UNDETERMINED
        return str(self._identifier.classify(telling)[0])

    def _path(self) -> Path:
        if looks_like_a_path(self._source):
            path = Path(self._source).expanduser() / "tokenizer.json"
            if not path.is_file():
                raise self._fault("has no tokenizer.json")
            return path
        from huggingface_hub import hf_hub_download

        try:
            return Path(hf_hub_download(self._source, "tokenizer.json", local_files_only=self._local_files_only))
        except Exception as error:  # of the hub's client or of the HTTP client below it
            raise self._fault(f"has no tokenizer.json that can be had ({type(error).__name__})") from error

    def _fault(self, reason: str) -> ConfigError:
        named = bounded(self._source, 300)
        return ConfigError(f"stages.preprocess.tokenizer {named} {reason}: name a folder or an id that has one.", STAGE)


def _language_identifier() -> Any:
    """Return the identifier, held to languages with a two-letter code (ISO 639-1), as replies name them."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages([label for label in identifier.labels if len(label) == 2])
    return identifier
