"""``python -m app.ops.smoke``: asks a running gateway one question and reads its metrics, as ``helm test`` does.

Exit codes: 0 everything is as it should be; 1 something is not, with one sentence that says what.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from app.errors import BatonError, ConfigError
from app.ingestion.targets import wait_until_ready
from app.ops.api_key import api_key
from app.ops.arguments import gateway, number
from app.ops.ask import Answer, AskError, Question, ask, printable

#: A metric of the gateway, as Ray exports it, that counts every request.
METRIC = "ray_baton_requests_total"
_PAUSE_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; return the exit code."""
    options = _parse(arguments)
    end = time.monotonic() + options.timeout_seconds
    try:
        wait_until_ready(options.url, options.timeout_seconds, api_key())
        answer = _answer(options, end)
        print(f"answered: {printable(answer.text)!r}")
        for citation in answer.baton.get("citations") or ():
            print(f"cites {citation.get('source') or citation.get('id')}")
        if options.metrics_url:
            print(f"metrics: {_metric(options.metrics_url, end)}")
    except (AskError, BatonError) as error:
        print(f"smoke: {error.message}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m app.ops.smoke", description="Check a running gateway.")
    parser.add_argument("--url", type=gateway, required=True, help="address of the gateway")
    parser.add_argument("--metrics-url", help="address of a metrics page; each address behind its name is read")
    parser.add_argument("--question", required=True, help="what to ask")
    parser.add_argument("--expect-citation", action="store_true", help="the answer must cite a passage")
    parser.add_argument("--timeout-seconds", type=number(0, 86_400), default=300.0, help="how long all of it may take")
    return parser.parse_args(arguments)


def _answer(options: argparse.Namespace, end: float) -> Answer:
    """Ask until the answer is there; documents may still be on their way into the index."""
    while True:
        pieces: list[str] = []
        answer = ask(Question(options.question, options.url, key=api_key()), pieces.append)
        if answer.text and len(pieces) > 1 and (answer.baton.get("citations") or not options.expect_citation):
            return answer
        if time.monotonic() > end:
            raise AskError(_shortcoming(answer, len(pieces)))
        time.sleep(_PAUSE_SECONDS)


def _shortcoming(answer: Answer, pieces: int) -> str:
    if not answer.text:
        return "The answer is empty."
    if pieces < 2:
        return "The answer came in one piece: something between here and the gateway buffers the stream."
    return f"The answer cites no passage: is the profile's collection indexed? It says {printable(answer.text)!r}"


def _metric(url: str, end: float) -> str:
    """Return a line of the gateway's own metric; Ray exports it some seconds late."""
    while True:
        for page in _pages(url):
            found = next((line for line in page.splitlines() if line.startswith(METRIC)), None)
            if found:
                return found
        if time.monotonic() > end:
            raise ConfigError(f"No page behind {url} shows {METRIC}: do the pods export metrics on that port?")
        time.sleep(_PAUSE_SECONDS)


def _pages(url: str) -> list[str]:
    """Read the page at every address of the host: each Ray node exports its own."""
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except OSError:
        return []
    pages = []
    for address in sorted({str(entry[4][0]) for entry in found}):
        host = f"[{address}]" if ":" in address else address
        try:
            pages.append(httpx.get(f"{parts.scheme}://{host}:{parts.port or 80}{parts.path}", timeout=10).text)
        except httpx.HTTPError:
            continue
    return pages


if __name__ == "__main__":
    sys.exit(main())
