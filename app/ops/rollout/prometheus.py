"""Numbers of a Prometheus, over its HTTP API."""

from __future__ import annotations

import math

import httpx

from app.config.rollout import Judgement
from app.errors import bounded
from app.ops.rollout.signals import Scope, Unreachable, count_query, query

_TIMEOUT_SECONDS = 10.0


class Prometheus:
    """Asks a Prometheus, or what answers like one (Thanos, Mimir, VictoriaMetrics).

    ``selector`` names the release in built-in queries: ``namespace="…",job="…"``. ``token``: sent as a bearer token.
    """

    def __init__(self, url: str, selector: str = "", token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._selector = selector
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Certificates take long to load, so they are loaded for https only (always checked there).
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, headers=headers, verify=url.startswith("https:"))

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def measure(self, judgement: Judgement, scope: Scope) -> float | None:
        """Return a number; ``None`` where the query finds nothing. Raises :class:`Unreachable`."""
        return self._ask(query(judgement, scope, self._selector))

    def basis(self, judgement: Judgement, scope: Scope) -> float:
        """Return how many requests or answers the number is taken of. Raises :class:`Unreachable`."""
        return self._ask(count_query(judgement, scope, self._selector)) or 0.0

    def _ask(self, text: str) -> float | None:
        try:
            answer = self._client.post(f"{self._url}/api/v1/query", data={"query": text})
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"{self._url} does not answer ({type(error).__name__})") from None
        try:
            body = answer.json()
            if body["status"] != "success":
                raise Unreachable(f"Prometheus refuses the query: {str(body.get('error', answer.status_code))[:200]}")
            return _number(body["data"])
        except (ValueError, KeyError, TypeError, IndexError):
            raise Unreachable(
                f"{self._url} does not answer like a Prometheus (status {answer.status_code}, {bounded(answer.text)})"
            ) from None


def _number(data: dict[str, object]) -> float | None:
    """Return the one number of a result."""
    result = data["result"]
    if not isinstance(result, list):
        raise TypeError(result)
    if data["resultType"] == "scalar":
        return _finite(float(result[1]))
    if data["resultType"] != "vector":
        raise Unreachable(f"the query gives a {data['resultType']}, not one number: take a sum or an average of it")
    if len(result) > 1:
        raise Unreachable(f"the query gives {len(result)} numbers, not one: take a sum or a maximum of them")
    return _finite(float(result[0]["value"][1])) if result else None


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
