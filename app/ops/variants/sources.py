"""Where the numbers come from: the metrics pages of the nodes, or a Prometheus that reads them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import httpx

from app.errors import InvalidRequest, StageUnavailable, bounded
from app.ops.top.window import Reading, Window

#: What a comparison reads, each with the labels that it tells rows apart by.
METRICS = {
    "ray_baton_variant_outcomes_total": ("variant", "way", "outcome"),
    "ray_baton_time_to_first_token_milliseconds_bucket": ("variant", "le"),
    "ray_baton_request_milliseconds_bucket": ("variant", "outcome", "le"),
    "ray_baton_grounding_bucket": ("variant", "le"),
}
_PERIOD = re.compile(r"[0-9]+(s|m|h|d|w)")


def read(urls: Sequence[str], profile: str, period: str) -> Window:
    """Return what was counted for a profile: over ``period`` from a Prometheus, since the start from metrics pages.

    Raises InvalidRequest for a period that Prometheus does not know, StageUnavailable where nothing answers.
    """
    if not _PERIOD.fullmatch(period):
        raise InvalidRequest(f"--period is {bounded(period)}: name a number and a unit, like 30m, 6h or 2d.")
    pages = [url for url in urls if url.rstrip("/").endswith("/metrics")]
    with httpx.Client(timeout=30) as client:
        if len(pages) == len(urls):
            reading = Reading.of([_text(client, url, {}) for url in pages], time.time())
            return Window(reading.beginning(), reading)
        if len(urls) > 1:
            raise InvalidRequest("--url names a Prometheus and something else: name one Prometheus, or metrics pages.")
        return _from_prometheus(client, urls[0], profile, period)


def _from_prometheus(client: httpx.Client, url: str, profile: str, period: str) -> Window:
    series = {}
    for name, labels in METRICS.items():
        query = f'sum by (profile, {", ".join(labels)}) (increase({name}{{profile="{profile}"}}[{period}]))'
        body = _json(client, f"{url.rstrip('/')}/api/v1/query", {"query": query})
        rows = body.get("data", {}).get("result", [])
        series[name] = {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in rows}
    now = time.time()
    return Window(Reading(now - 1), Reading(now, series))


def _json(client: httpx.Client, url: str, query: dict[str, str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_text(client, url, query))
    except ValueError:
        raise StageUnavailable(f"{bounded(url)} does not speak as Prometheus does: name its address.") from None
    return found


def _text(client: httpx.Client, url: str, query: dict[str, str]) -> str:
    try:
        answer = client.get(url, params=query)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise StageUnavailable(
            f"Nothing answers at {bounded(url)} ({type(error).__name__}): name a node's metrics page "
            "(http://HOST:PORT/metrics) or a Prometheus (http://HOST:9090)."
        ) from None
    return answer.text
