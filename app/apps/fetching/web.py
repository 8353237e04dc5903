"""One page from the web, within every limit: where from, how much, of what type, over how many redirects, how long."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass
from email.message import Message
from functools import cached_property
from urllib.parse import urljoin

import httpcore
import httpx

from app.apps.fetching.connecting import CheckedBackend, Resolve, look_up
from app.apps.fetching.targets import HostRules, Target, parse_target, refused
from app.config.fetching import FetchConfig
from app.errors import PageUnusable, UpstreamFailed, UpstreamTimeout, UrlRefused, bounded

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MISSING = frozenset({404, 410})


@dataclass(frozen=True, slots=True)
class Page:
    """What a server sent: ``charset`` is empty where it named none, ``body`` is decompressed."""

    url: str
    media_type: str
    charset: str
    body: bytes


class Web:
    """Fetches pages of the hosts that ``rules`` allow, of the given media types, as ``config`` bounds it."""

    def __init__(
        self, config: FetchConfig, rules: HostRules, media_types: Sequence[str], resolve: Resolve = look_up
    ) -> None:
        self._config = config
        self._rules = rules
        self._media_types = media_types
        self._backend = CheckedBackend(config.private_networks, resolve)

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        # httpx's own: certifi's authorities, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
        return httpx.create_ssl_context()

    async def get(self, url: str) -> Page:
        """Fetch a page.

        Raises :class:`app.errors.UrlRefused` and :class:`app.errors.PageUnusable` where the URL is at fault,
        :class:`app.errors.UpstreamFailed` and :class:`app.errors.UpstreamTimeout` where the server is.
        """
        limit = self._config.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return await self._follow(parse_target(url, self._rules))
        except TimeoutError:
            raise UpstreamTimeout(f"The page could not be fetched within {limit:g} seconds.", "fetcher") from None

    async def _follow(self, target: Target) -> Page:
        for _ in range(self._config.max_redirects + 1):
            answer = await self._ask(target)
            if isinstance(answer, Page):
                return answer
            try:
                target = parse_target(urljoin(str(target), answer), self._rules)
            except (UrlRefused, ValueError) as error:
                raise refused(f"The page redirects to a URL that is refused. {error}") from None
        raise _unusable(f"The page redirects more than {self._config.max_redirects} times: send the URL where it ends.")

    async def _ask(self, target: Target) -> Page | str:
        """Return the page, or where its server redirects to."""
        url = httpcore.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
        )
        headers = {
            "Host": target.authority,
            "User-Agent": self._config.user_agent,
            "Accept": ", ".join(self._media_types),
            "Accept-Encoding": "gzip",
        }
        trust = self._trust if target.scheme == "https" else None
        try:
            async with (
                httpcore.AsyncConnectionPool(trust, max_connections=1, network_backend=self._backend) as pool,
                pool.stream("GET", url, headers=list(headers.items())) as response,
            ):
                return await self._read(target, response)
        except httpcore.ConnectError:
            raise UpstreamFailed(f"The host {bounded(target.host)} cannot be connected to.", "fetcher") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
            raise UpstreamFailed(f"The host {bounded(target.host)} broke off its answer.", "fetcher") from None

    async def _read(self, target: Target, response: httpcore.Response) -> Page | str:
        headers = {name.lower(): value for name, value in response.headers}
        if response.status in _REDIRECTS and b"location" in headers:
            return headers[b"location"].decode("utf-8", "replace")
        if response.status in _MISSING:
            raise _unusable(f"There is no page at this URL (the server said {response.status}).")
        if response.status != 200:
            raise UpstreamFailed(f"The host {bounded(target.host)} answered {response.status}.", "fetcher")
        media_type, charset = _media_type(headers.get(b"content-type", b""))
        if media_type not in self._media_types:
            kind = f"is of the type {bounded(media_type)}" if media_type else "has no type"
            raise _unusable(f"The page {kind}: only {', '.join(self._media_types)} can be read.")
        limit = self._config.max_bytes
        if headers.get(b"content-length", b"").isdigit() and int(headers[b"content-length"][:20]) > limit:
            raise _too_large(limit)
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        body = await _body(response.aiter_stream(), encoding, limit)
        return Page(str(target), media_type, charset, body)


def _media_type(header: bytes) -> tuple[str, str]:
    """Return type and charset of a ``Content-Type``; empty where they are not told."""
    if not header.strip():
        return "", ""
    message = Message()
    message["Content-Type"] = header.decode("latin-1")
    charset = message.get_param("charset", "")
    return message.get_content_type(), charset if isinstance(charset, str) else ""


async def _body(chunks: AsyncIterable[bytes], encoding: bytes, limit: int) -> bytes:
    """Return the body, unpacked no further than the limit: a small one may hold gigabytes of nothing."""
    if encoding not in (b"identity", b"gzip", b"x-gzip"):
        raise UpstreamFailed("The page is compressed in a way that was not asked for.", "fetcher")
    unpacker = None if encoding == b"identity" else zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    body, sent = bytearray(), 0
    async for chunk in chunks:
        sent += len(chunk)
        try:
            body += chunk if unpacker is None else unpacker.decompress(chunk, limit + 1 - len(body))
        except zlib.error:
            raise UpstreamFailed("The page is damaged: it cannot be decompressed.", "fetcher") from None
        if max(sent, len(body)) > limit:
            raise _too_large(limit)
    if unpacker is not None and sent and not unpacker.eof:
        raise UpstreamFailed("The page is damaged: its compressed end is missing.", "fetcher")
    return bytes(body)


def _too_large(limit: int) -> PageUnusable:
    return _unusable(f"The page is larger than {limit} bytes.")


def _unusable(sentence: str) -> PageUnusable:
    return PageUnusable(sentence, "fetcher", "url")
