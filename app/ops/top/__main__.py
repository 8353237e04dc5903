"""A board of the running pipeline in the terminal: ``python -m app.ops.top`` (what ``make top`` calls).

Reads the metrics page of each node, the same ones that Prometheus reads, so it needs neither Prometheus nor Grafana.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence

import httpx
from rich.console import Console, RenderableType
from rich.live import Live

from app.errors import StageUnavailable
from app.ops.arguments import number
from app.ops.top.board import board
from app.ops.top.window import Reading, Window

_DEFAULT = "http://127.0.0.1:9464/metrics"
_OURS = "ray_baton_"
#: Columns of a board in a file or a pipe, which have no width of their own.
_WIDTH = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the board until Ctrl-C; return the exit code: 0 shown, 1 nothing is running."""
    options = _parser().parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    with httpx.Client(timeout=10) as client, contextlib.suppress(KeyboardInterrupt):
        try:
            _show(console, lambda: _read(client, options.url or [_DEFAULT]), options)
        except StageUnavailable as error:
            print(f"baton: {error}", file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="top", description="Show what the running pipeline does.")
    found.add_argument("--url", action="append", help=f"a node's metrics page, once per node (default {_DEFAULT})")
    found.add_argument("--interval", type=number(0.2, 3600), default=2.0, help="seconds between two looks (default 2)")
    found.add_argument(
        "--window", type=number(1, 86_400), default=60.0, help="seconds that rates and quantiles cover (default 60)"
    )
    found.add_argument("--once", action="store_true", help="print one board, of all since the start, and end")
    return found


def _show(console: Console, read: Callable[[], Reading], options: argparse.Namespace) -> None:
    seen = deque([read()])
    frame = board(Window(seen[0].beginning(), seen[0]), whole_life=True)
    if options.once:
        console.print(frame)
        return
    if not console.is_terminal:  # a file or a pipe: boards one after another, without control codes
        console.print(frame)
        while True:
            console.print(_next(seen, read, options))
    with Live(frame, console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_next(seen, read, options), refresh=True)


def _next(seen: deque[Reading], read: Callable[[], Reading], options: argparse.Namespace) -> RenderableType:
    time.sleep(options.interval)
    seen.append(read())
    while len(seen) > 2 and seen[-1].at - seen[1].at >= options.window:
        seen.popleft()
    return board(Window(seen[0], seen[-1]), whole_life=False)


def _read(client: httpx.Client, urls: Sequence[str]) -> Reading:
    pages = [_page(client, url) for url in urls]
    if not any(_OURS in page for page in pages):
        raise StageUnavailable(
            f"{' and '.join(urls)} has no metrics of Baton: it is still starting, or that is another cluster's page."
        )
    return Reading.of(pages, time.time())


def _page(client: httpx.Client, url: str) -> str:
    try:
        answer = client.get(url)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise StageUnavailable(
            f"Nothing is running that answers at {url} ({type(error).__name__}): start Baton with `make run`, or name "
            'the page with make top ARGS="--url http://HOST:PORT/metrics".'
        ) from None
    return answer.text


if __name__ == "__main__":
    sys.exit(main())
