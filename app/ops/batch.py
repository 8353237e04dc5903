"""``python -m app.ops.batch INPUT OUTPUT``: answers to a file of requests, each row exactly once.

What is done is kept beside the output: a run that was stopped or killed goes on where it stood when the same command
runs again. Exit codes: 0 all rows answered; 1 some failed (the output holds their errors; ``--retry-failed`` asks them
again), or there was none; 2 wrong usage, or an input other than the one that was begun; 3 the gateway, the engine or
the storage failed, or another run is at work on the same output (what is done stays); 130 stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from app.batch.gateway_way import CheckedAsker, GatewayAsker, gateway_client
from app.batch.ledger import Busy, Ledger
from app.batch.places import Place
from app.batch.progress import Progress, count_rows
from app.batch.results import write_results
from app.batch.rows import Rows
from app.batch.run import BatchRun, RowMeter, RunOptions, Stopped
from app.errors import BatonError, ClientError, InvalidRequest
from app.ingestion.targets import wait_until_ready
from app.metrics import MemoryMetrics, Metrics, RayMetrics
from app.ops.api_key import VARIABLE, api_key
from app.ops.arguments import gateway, waiting, whole
from app.ops.batch_engine import own_baton

_MAX_ROW_BYTES = 1 << 20
_START_SECONDS = 1800
_STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (Stopped, KeyboardInterrupt):
        print("stopped: what is done stays, run the same command again to go on", file=sys.stderr)
        return _STOPPED
    except BatonError as error:
        print(f"batch: {error.message}", file=sys.stderr)
        if isinstance(error, Busy):  # it ends: a Job's next pod may begin before the last one's lock is gone
            return 3
        return 2 if isinstance(error, ClientError) and error.stage == "batch" else 3
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        told = f"{where}{error.strerror or type(error).__name__}"
        print(f"batch: {told}: mend that and run the same command again; what is done stays", file=sys.stderr)
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app.ops.batch",
        description=f"Answer a file of requests. Where the gateway asks for an API key, it goes into {VARIABLE}.",
    )
    parser.add_argument(
        "input", help="rows to answer: .jsonl or .parquet, a path or s3://… or gs://…; {date} stands for today (UTC)"
    )
    parser.add_argument("output", help="where the answers go: .jsonl or .parquet, likewise")
    parser.add_argument(
        "--engine",
        choices=("shared", "own"),
        default="shared",
        help="shared: the running Baton's, at low priority; own: a Baton started for this run (%(default)s)",
    )
    parser.add_argument(
        "--url", type=gateway, default="http://127.0.0.1:8000", help="engine shared: the gateway (%(default)s)"
    )
    parser.add_argument("--priority", default="batch", help="priority class of rows that name none (%(default)s)")
    parser.add_argument(
        "--wait-seconds",
        type=waiting,
        metavar="N",
        help="how long to wait until everything serves (default: 0 with engine shared, 1800 with engine own)",
    )
    parser.add_argument("--config", type=Path, help="engine own: a local configuration, or a Serve configuration")
    parser.add_argument("--data", type=Path, default=Path(".baton"), help="engine own: what {data} in it stands for")
    parser.add_argument("--concurrency", type=whole(1, 4096), default=16, help="rows asked at once (%(default)s)")
    parser.add_argument("--progress", help="folder that keeps what is done (default: OUTPUT.progress); {date} likewise")
    parser.add_argument("--tolerate-failed", action="store_true", help="end with 0 though rows failed, for Jobs")
    parser.add_argument("--retry-failed", action="store_true", help="ask the rows again that failed before")
    parser.add_argument(
        "--patience",
        type=whole(1, 10**9),
        default=600,
        help="seconds without any answer before the run ends (%(default)s)",
    )
    parser.add_argument(
        "--max-row-bytes", type=whole(1, 1 << 30), default=_MAX_ROW_BYTES, help="longest row (%(default)s)"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    if (options.engine == "own") != (options.config is not None):
        raise InvalidRequest("--config says what --engine own starts: give both or none of them.", "batch")
    today = datetime.now(UTC).date().isoformat()
    source, target = (Place.parse(text.replace("{date}", today)) for text in (options.input, options.output))
    if source.uri == target.uri:
        raise InvalidRequest("Input and output are the same file: name another output.", "batch")
    target.check_writable()
    with Ledger(_progress_folder(options, target, today)) as ledger:
        ledger.claim({"input": source.fingerprint()})
        total = count_rows(source, options.max_row_bytes)
        left = total - ledger.done + (ledger.failed if options.retry_failed else 0)
        progress = Progress(total, total - left)
        asked = RunOptions(options.concurrency, options.patience, options.retry_failed)
        run = BatchRun(ledger, asked, RowMeter(_metrics()), progress.ended)
        if left:
            _answer(options, run, Rows(source, options.max_row_bytes))
        written = write_results(target, ledger.records())
        failed = ledger.failed
    print(f"{target.uri}: {written} rows, {failed} failed; {progress.told()}")
    if not written:
        print(f"batch: {source.uri} holds no row", file=sys.stderr)
    return 1 if (failed or not written) and not options.tolerate_failed else 0


def _progress_folder(options: argparse.Namespace, target: Place, today: str) -> Path:
    if options.progress is not None:
        return Path(options.progress.replace("{date}", today))
    if target.path is None:
        raise InvalidRequest(f"{target.uri} is no place to keep what is done: name a folder with --progress.", "batch")
    return target.path.with_name(target.path.name + ".progress")


def _answer(options: argparse.Namespace, run: BatchRun, rows: Rows) -> None:
    if options.engine == "shared":
        wait_until_ready(options.url, options.wait_seconds or 0, api_key())
        asyncio.run(_ask_gateway(options, options.url, run, rows))
        return
    with own_baton(options.config, options.data, options.wait_seconds or _START_SECONDS) as url:
        asyncio.run(_ask_gateway(options, url, run, rows))


async def _ask_gateway(options: argparse.Namespace, url: str, run: BatchRun, rows: Rows) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    name = f"batch-{hashlib.sha256(options.input.encode()).hexdigest()[:12]}"
    async with gateway_client(url, api_key(), options.concurrency) as client:
        asker = CheckedAsker(GatewayAsker(client, options.priority, name), client)
        await run.run(rows, asker, stop)


def _metrics() -> Metrics:
    """Return Ray's metrics where this runs as a job of a Ray cluster, and ones that nobody reads elsewhere."""
    if not os.environ.get("RAY_ADDRESS"):
        return MemoryMetrics()
    import ray

    ray.init(log_to_driver=False)
    return RayMetrics()


if __name__ == "__main__":
    sys.exit(main())
