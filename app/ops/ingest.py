"""``python -m app.ops.ingest``: files into a collection, straight into the store or through a running gateway.

Exit codes: 0 all stored; 1 some rows were bad, or a path held no document (the others are stored); 2 wrong usage; 3
the store, the embedder or the gateway failed (what was stored stays: run the same command again to go on); 130 stopped
by Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from app.config.embedder import EmbedderConfig
from app.config.retrieval import ChunkingConfig, StoreConfig
from app.errors import BatonError, ConfigError, bounded
from app.ingestion.documents import Document
from app.ingestion.indexer import MAX_DOCUMENTS, Indexer
from app.ingestion.readers import BadRow, Row, count_documents, read_rows
from app.ingestion.targets import GatewayTarget, StoreTarget, Target, wait_until_ready
from app.ops.api_key import VARIABLE, api_key
from app.ops.arguments import gateway, waiting, whole
from app.stores.contract import check_name

_BATCH = 64
_BATCH_CHARS = 256 * 1024
_REPORT_SECONDS = 2.0
_SHOWN_BAD_ROWS = 50
_STOPPED = 130


def main(arguments: Sequence[str] | None = None, stop: threading.Event | None = None) -> int:
    """Run the command; returns its exit code. Once ``stop`` is set nothing more is sent or told."""
    stop = stop or threading.Event()
    parser = _parser()
    options = parser.parse_args(arguments)
    _check_usage(parser, options)
    try:
        return _run(options, stop)
    except KeyboardInterrupt:
        print("stopped: what is stored stays, run the same command again to go on", file=sys.stderr)
        return _STOPPED
    except BatonError as error:
        if stop.is_set():
            return _STOPPED
        print(f"ingest: {error.message}", file=sys.stderr)
        return 3


def _local(text: str) -> Path:
    """Read an argument that names a file or folder of this machine."""
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{bounded(text)} is an address: name files or folders of this machine")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app.ops.ingest",
        description="Store documents (.jsonl, .parquet, .md, .txt, or folders of them) in a collection.",
    )
    parser.add_argument("files", nargs="*", type=_local, metavar="FILE", help="files and folders to read")
    parser.add_argument("--collection", help="the collection; made when it is not there")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--store", metavar="URI", help="a folder or s3://… (LanceDB), postgresql://…, or qdrant+http://…"
    )
    where.add_argument("--url", type=gateway, help="a running gateway, for instance http://localhost:8000")
    parser.add_argument(
        "--embedder", help="with --store: folder or id of the embedding model; 'fake' or 'fake:SIZE' for tests"
    )
    parser.add_argument(
        "--secret-env",
        metavar="NAME",
        help=f"variable with the store's password or the gateway's API key (with --url also {VARIABLE})",
    )
    parser.add_argument("--size-tokens", type=whole(1, 10**6), help="with --store: largest passage")
    parser.add_argument("--overlap-tokens", type=whole(0, 10**6), help="with --store: what neighbouring passages share")
    parser.add_argument(
        "--batch", type=whole(1, MAX_DOCUMENTS), default=_BATCH, help="documents stored in one step (%(default)s)"
    )
    parser.add_argument("--delete-missing", action="store_true", help="with --store: delete documents not in the files")
    parser.add_argument(
        "--create-empty", action="store_true", help="with --store: make the collection and store nothing"
    )
    parser.add_argument("--list", action="store_true", help="list the collections")
    parser.add_argument(
        "--wait-seconds",
        type=waiting,
        default=0,
        metavar="N",
        help="with --url: how long to wait for the gateway to serve",
    )
    return parser


def _check_usage(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with code 2 and a sentence where options do not go together."""
    settings = {
        "--embedder": options.embedder,
        "--size-tokens": options.size_tokens,
        "--overlap-tokens": options.overlap_tokens,
    }
    if options.wait_seconds and not options.url:
        parser.error("--wait-seconds: only with --url")
    given = [name for name, value in settings.items() if value is not None]
    faults = [
        (options.url and given, f"{', '.join(given)}: only with --store; the gateway has its own"),
        (
            options.url and options.delete_missing,
            "--delete-missing: only with --store; a gateway does not tell which documents it has: delete them by id",
        ),
        (
            options.url and options.create_empty,
            "--create-empty: only with --store; a gateway makes a collection with its first documents",
        ),
        (not options.list and not options.collection, "--collection is required"),
        (not options.list and options.store and not options.embedder, "--embedder is required with --store"),
        (not (options.list or options.create_empty) and not options.files, "name at least one file or folder"),
        (options.create_empty and options.files, "--create-empty stores nothing: name no files"),
    ]
    for wrong, sentence in faults:
        if wrong:
            parser.error(sentence)
    for path in options.files:
        if not path.exists():
            parser.error(f"{path} does not exist")
        if not (path.is_file() or path.is_dir()):
            parser.error(f"{path} is neither a file nor a folder: write what it gives into a file first")


def _run(options: argparse.Namespace, stop: threading.Event) -> int:
    target = _target(options)
    try:
        if options.list:
            _print_collections(target.list_collections())
            return 0
        check_name(options.collection)
        if options.create_empty and isinstance(target, StoreTarget):
            target.create(options.collection)
            print(f"{options.collection}: ready")
            return 0
        return _ingest(target, options, stop)
    finally:
        target.close()


def _target(options: argparse.Namespace) -> Target:
    if options.url:
        key = _api_key(options.secret_env)
        wait_until_ready(options.url, options.wait_seconds, key)
        return GatewayTarget(options.url, key)
    from app.embedders.factory import build_embedder
    from app.stores.build import build_store

    store = build_store(store_config(options.store, options.secret_env))
    # A list needs no vectors, so the fake that loads nothing stands in.
    embedder = build_embedder(embedder_config(options.embedder or "fake"))
    sizes = {"size_tokens": options.size_tokens, "overlap_tokens": options.overlap_tokens}
    chunking = ChunkingConfig.parse({key: value for key, value in sizes.items() if value is not None}, "chunking")
    store.start()
    embedder.start()
    return StoreTarget(store, Indexer(store, embedder, chunking))


def store_config(uri: str, secret_env: str | None = None) -> StoreConfig:
    """Return the configuration of the store behind a URI; the scheme tells its kind."""
    kind = "lancedb"
    if uri.startswith(("postgresql://", "postgres://")):
        kind = "pgvector"
    elif uri.startswith("qdrant+"):
        kind, uri = "qdrant", uri.removeprefix("qdrant+")
    return StoreConfig.parse({"kind": kind, "uri": uri, "secret_env": secret_env}, "store")


def embedder_config(source: str) -> EmbedderConfig:
    """Return the configuration of an embedder: a folder, a model id, ``fake`` or ``fake:<dimension>``."""
    name, _, size = source.partition(":")
    if name == "fake":
        return EmbedderConfig.parse({"kind": "fake", "dimension": size or None}, "embedder")
    return EmbedderConfig.parse({"source": source}, "embedder")


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return api_key() or None
    if not os.environ.get(variable):
        raise ConfigError(f"--secret-env: the environment variable {variable} is not set")
    return os.environ[variable]


# --- the work -------------------------------------------------------------------------------------------------------


def _ingest(target: Target, options: argparse.Namespace, stop: threading.Event) -> int:
    progress = Progress(options.collection, count_documents(options.files))
    kept = Sieve(progress)
    for batch in batches(kept.pass_on(read_rows(options.files)), options.batch):
        if stop.is_set():
            return _STOPPED
        progress.add(target.send(options.collection, batch))
    progress.finish()
    if options.delete_missing and isinstance(target, StoreTarget):
        if progress.bad:
            print("nothing was deleted, since a bad row may stand for a stored document", file=sys.stderr)
        else:
            print(f"{options.collection}: {target.delete_missing(options.collection, kept.ids)} documents deleted")
    return 1 if progress.bad else 0


def batches(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Group documents: ``size`` at most, and about a quarter of a million characters."""
    batch: list[Document] = []
    chars = 0
    for document in documents:
        if batch and (len(batch) >= size or chars + len(document.text) > _BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(document)
        chars += len(document.text)
    if batch:
        yield batch


class Sieve:
    """Takes out bad rows and repeats, and keeps all ids."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._seen: dict[str, tuple[str, str]] = {}

    @property
    def ids(self) -> set[str]:
        """The ids of all documents that passed."""
        return set(self._seen)

    def pass_on(self, rows: Iterable[Row | BadRow]) -> Iterator[Document]:
        """Yield each document once; a second one under the same id with other content is a bad row."""
        for row in rows:
            if isinstance(row, BadRow):
                self._progress.report(row)
                continue
            document, content = row.document, row.document.content_hash("")
            known = self._seen.get(document.id)
            if known is None:
                self._seen[document.id] = content, row.place
                yield document
            elif known[0] == content:
                self._progress.repeated += 1
            else:
                told = f"the id {bounded(document.id)} is that of another document already ({known[1]})"
                self._progress.report(BadRow(row.file, row.line, told))


class Progress:
    """Counts and tells how far the work is, on standard error; the last line goes to standard output."""

    def __init__(self, collection: str, total: int) -> None:
        self.bad = 0
        self.repeated = 0
        self._collection = collection
        self._total = total
        self._stored = self._passages = self._unchanged = 0
        self._started = self._shown = time.monotonic()

    def report(self, row: BadRow) -> None:
        """Tell of a bad row; after fifty only their number is told, at the end."""
        self.bad += 1
        if self.bad <= _SHOWN_BAD_ROWS:
            print(f"bad row: {row}", file=sys.stderr)

    def add(self, result: Any) -> None:
        """Count a stored batch."""
        self._stored += result.documents
        self._passages += result.passages
        self._unchanged += result.unchanged
        now = time.monotonic()
        if now - self._shown >= _REPORT_SECONDS:
            self._shown = now
            print(f"{self._collection}: {self._done()}/{self._total} documents, {self._rate()}/s", file=sys.stderr)

    def finish(self) -> None:
        """Print the sums."""
        print(
            f"{self._collection}: {self._stored} documents stored ({self._passages} passages), "
            f"{self._unchanged} unchanged, {self.repeated} repeated, {self.bad} bad rows, {self._rate()} documents/s"
        )

    def _done(self) -> int:
        return self._stored + self._unchanged + self.repeated + self.bad

    def _rate(self) -> str:
        return f"{(self._stored + self._unchanged) / max(time.monotonic() - self._started, 0.001):.1f}"


def _print_collections(rows: Sequence[dict[str, Any]]) -> None:
    print(f"{'COLLECTION':<32} {'DOCUMENTS':>10} {'PASSAGES':>10} {'DIMENSION':>10}  STATE")
    for row in rows:
        state = row.get("fault") or "ok"
        print(f"{row['name']:<32} {row['documents']:>10} {row['passages']:>10} {row['dimension']:>10}  {state}")


if __name__ == "__main__":
    sys.exit(main())
