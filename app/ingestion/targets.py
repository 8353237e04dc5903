"""Where the ingestion command sends documents: straight into a store, or through a running gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import httpx

from app.errors import BatonError, CollectionNotFound, ConfigError, InvalidRequest, StageUnavailable
from app.ingestion.documents import Document
from app.ingestion.indexer import MAX_IDS, Indexer
from app.jobs import DocumentResult
from app.stores.contract import CollectionInfo, Store, check_name
from app.stores.filters import RESERVED_ID

_TRIES = 6
_LONGEST_WAIT_SECONDS = 30.0
_TIMEOUT_SECONDS = 600.0
_BUSY = (429, 503)
# What a server of another kind says to our paths; Baton's own refusals of that status have a message.
_UNKNOWN_PATH = (404, 405, 501)


def wait_until_ready(url: str, seconds: float, key: str | None = None, pause_seconds: float = 5.0) -> None:
    """Wait until every stage of the gateway at ``url`` serves; 0 seconds: do not wait. Raises StageUnavailable.

    Where the gateway asks for keys, it tells only with a ``key`` what is missing.
    """
    # A key that no header can hold is told of by the request that needs it.
    headers = {"Authorization": f"Bearer {key}"} if key and key.isascii() and key.isprintable() else {}
    end = time.monotonic() + seconds
    told = "it does not answer"
    while seconds:
        try:
            answer = httpx.get(f"{url.rstrip('/')}/readyz", headers=headers, timeout=30)
            if answer.status_code == httpx.codes.OK:
                return
            told = f"it answers {answer.status_code}: {answer.text[:200]}"
        except httpx.InvalidURL as error:
            raise ConfigError(f"--url: {error}") from None
        except httpx.HTTPError as error:
            told = f"it does not answer ({type(error).__name__})"
        if time.monotonic() >= end:
            raise StageUnavailable(f"The gateway at {url} was not ready within {seconds:.0f} s: {told}")
        time.sleep(pause_seconds)


class Target(Protocol):
    """What takes documents."""

    def send(self, collection: str, documents: Sequence[Document]) -> DocumentResult:
        """Store one batch of documents, all or none."""
        ...

    def list_collections(self) -> list[dict[str, Any]]:
        """Return ``{"name", "documents", "passages", "dimension", …}`` per collection."""
        ...

    def close(self) -> None:
        """Release connections."""


class StoreTarget:
    """Writes to a store, with the embedder in this process. Both are started."""

    def __init__(self, store: Store, indexer: Indexer) -> None:
        self._store = store
        self._indexer = indexer

    def send(self, collection: str, documents: Sequence[Document]) -> DocumentResult:
        """Chunk, embed and store."""
        return self._indexer.upsert_parsed(collection, documents)

    def list_collections(self) -> list[dict[str, Any]]:
        """Return what the store holds."""
        return [_row(info) for info in self._store.list_collections()]

    def create(self, collection: str) -> None:
        """Make an empty collection."""
        self._indexer.prepare(collection)

    def delete_missing(self, collection: str, kept: set[str]) -> int:
        """Delete the documents whose ids are not in ``kept``; returns how many."""
        try:
            stored = self._store.document_ids(check_name(collection))
            # What tenants stored over HTTP never stood in these files.
            gone = [key for key in stored if key not in kept and not key.startswith(RESERVED_ID)]
        except CollectionNotFound:
            return 0
        return sum(
            self._indexer.delete(collection, gone[start : start + MAX_IDS]) for start in range(0, len(gone), MAX_IDS)
        )

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class GatewayTarget:
    """Sends to ``POST /v1/collections/{name}/documents`` of a gateway; waits and tries again while it is busy."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        *,
        client: httpx.Client | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = client or httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_SECONDS)
        self._url = url
        self._wait = wait

    def send(self, collection: str, documents: Sequence[Document]) -> DocumentResult:
        """Post one batch; a batch too large for the gateway goes in halves."""
        path = f"/v1/collections/{check_name(collection)}/documents"
        answer = self._ask("POST", path, {"documents": [_body(document) for document in documents]})
        if answer.status_code == 413 and len(documents) > 1:
            middle = len(documents) // 2
            return _sum(self.send(collection, documents[:middle]), self.send(collection, documents[middle:]))
        counts = self._result(answer, {"documents", "passages", "unchanged"})
        return DocumentResult(counts["documents"], counts["passages"], counts["unchanged"])

    def list_collections(self) -> list[dict[str, Any]]:
        """Ask the gateway."""
        found: list[dict[str, Any]] = self._result(self._ask("GET", "/v1/collections"), {"data"})["data"]
        return found

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._client.request(method, path, json=body)
            except httpx.InvalidURL:
                raise ConfigError(f"--url: {self._url} is not a URL") from None
            except httpx.HTTPError as error:
                if "illegal status line" in str(error):
                    raise self._no_baton("does not speak HTTP") from error
                raise StageUnavailable(
                    f"the gateway at {self._url} does not answer ({type(error).__name__})"
                ) from error
            if answer.status_code not in _BUSY or attempt == _TRIES:
                break
            self._wait(_pause(answer, attempt))
        return answer

    def _result(self, answer: httpx.Response, keys: set[str]) -> Any:
        if answer.is_success:
            found = _json(answer)
            if not isinstance(found, dict) or not keys <= found.keys():
                raise self._no_baton("answers in another form")
            return found
        message = _message(answer)
        if message is None and answer.status_code in _UNKNOWN_PATH:
            raise self._no_baton(f"answered {answer.status_code}")
        message = message or answer.reason_phrase or "no reason given"
        kind: type[BatonError] = InvalidRequest if answer.is_client_error else StageUnavailable
        raise kind(f"the gateway answered {answer.status_code}: {message}")

    def _no_baton(self, said: str) -> ConfigError:
        return ConfigError(f"--url: no Baton answers at {self._url}; what listens there {said}: check host and port")


def _pause(answer: httpx.Response, attempt: int) -> float:
    """Return how long to wait: what the gateway asks for, else a second, doubled at each attempt."""
    asked = answer.headers.get("retry-after", "")
    return min(float(asked) if asked.isdecimal() else float(2 ** (attempt - 1)), _LONGEST_WAIT_SECONDS)


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _message(answer: httpx.Response) -> str | None:
    """Return what a refusal in Baton's form says; None in any other form."""
    try:
        return str(_json(answer)["error"]["message"])
    except (KeyError, TypeError):
        return None


def _body(document: Document) -> dict[str, Any]:
    """Return a document as the gateway takes it."""
    body = {field: getattr(document, field) for field in ("id", "text", "title", "source")}
    body["metadata"] = dict(document.metadata)
    return {key: value for key, value in body.items() if value not in ("", {})}


def _sum(first: DocumentResult, second: DocumentResult) -> DocumentResult:
    return DocumentResult(
        first.documents + second.documents, first.passages + second.passages, first.unchanged + second.unchanged
    )


def _row(info: CollectionInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "documents": info.documents,
        "passages": info.passages,
        "dimension": info.dimension,
        "embedder": info.embedder,
        "fault": info.fault,
    }
