"""The configuration of whatever fetches pages for callers: from where, how much, for how long."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, IPvAnyNetwork

from app.config.base import Config
from app.faults import ASCII_PATTERN, HOST_RULE_PATTERN, MEDIA_TYPE_PATTERN, WEB_PATTERN

HostRule = Annotated[str, Field(pattern=HOST_RULE_PATTERN, max_length=253)]
Port = Annotated[int, Field(ge=1, le=65_535)]
MediaType = Annotated[str, Field(pattern=MEDIA_TYPE_PATTERN, max_length=127)]


class FetchConfig(Config):
    """Which pages may be fetched for callers, and what one fetch may cost."""

    mediawiki_url: str = Field(default="https://en.wikipedia.org/w/api.php", pattern=WEB_PATTERN, max_length=1024)
    """The `api.php` of the MediaWiki that is searched. It needs the extension TextExtracts, as Wikipedia has it. Its
    host and port need no place in the lists below, but a private address of it does."""

    allowed_hosts: Annotated[tuple[HostRule, ...], Field(max_length=256)] = ("*.wikipedia.org",)
    """Hosts that callers' URLs may name, and redirects lead to: `news.example.org`, `*.example.org` for every host
    below that name, `*` for every public host. An empty list refuses every URL."""

    allowed_ports: Annotated[tuple[Port, ...], Field(max_length=64)] = (80, 443)
    """Ports that those hosts may be asked on."""

    private_networks: Annotated[tuple[IPvAnyNetwork, ...], Field(max_length=64)] = ()
    """Private networks, like `10.1.0.0/16`, whose addresses may be connected to all the same: for a wiki of one's own.
    Loopback, link-local, metadata and every other address that is not public are refused unless one of these has it."""

    content_types: Annotated[tuple[MediaType, ...], Field(min_length=1, max_length=16)] = (
        "text/html",
        "application/xhtml+xml",
        "text/plain",
    )
    """Media types of pages that are read. What is not HTML is taken as plain text."""

    max_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 2 * 1024 * 1024
    """Largest page in bytes, as sent and also as decompressed."""

    max_redirects: Annotated[int, Field(ge=0, le=20)] = 3
    """Most redirects that are followed; each is checked like the URL itself."""

    timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Longest time for one page in seconds: look-up, redirects and download together."""

    user_agent: Annotated[str, Field(min_length=1, max_length=256, pattern=ASCII_PATTERN)] = "Baton (articles)"
    """How requests name themselves. Wikipedia asks for a way to reach you here: an address or a page."""
