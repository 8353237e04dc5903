"""Which URLs may be fetched, by their form and their host; where the host's name leads is `connecting`'s to check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

import httpx

from app.errors import UrlRefused, bounded

#: Longest URL; browsers and servers stop near it too.
_MAX_CHARS = 2048
_PORTS = {"http": 80, "https": 443}
_STAGE = "fetcher"
# What parsers disagree on: white space and control characters, which some drop, and the backslash, a slash to some.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_USERINFO = re.compile(r"[^/?#]*//[^/?#]*@")
_NAME = re.compile(r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# `2130706433`, `0x7f.1`, `127.1`, `0177.0.0.1`: addresses to some resolvers, names to others.
_NUMERIC_END = re.compile(r"(^|\.)(\d+|0x[0-9a-f]*)$")


@dataclass(frozen=True, slots=True)
class HostRules:
    """Hosts and ports that may be asked: see :class:`app.config.fetching.FetchConfig`."""

    hosts: Sequence[str]
    ports: Sequence[int]

    def allow_host(self, host: str) -> bool:
        """Tell whether a host, in small letters and without a last dot, is on the list."""
        return any(_matches(rule, host) for rule in self.hosts)


def _matches(rule: str, host: str) -> bool:
    if rule == "*":
        return True
    return host.endswith(rule[1:]) if rule.startswith("*.") else host == rule


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in parts that nobody has to parse again. ``path`` has the query with it."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Return host and port as the header ``Host`` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_target(url: str, rules: HostRules) -> Target:
    """Return the parts of a URL that may be fetched. Raises :class:`app.errors.UrlRefused`."""
    if len(url) > _MAX_CHARS:
        raise refused(f"The URL is longer than {_MAX_CHARS} characters.")
    if _AMBIGUOUS.search(url):
        raise refused("The URL has white space, control characters or backslashes in it: encode them.")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        raise refused("The URL cannot be read: send a whole one, like https://en.wikipedia.org/wiki/Otter.") from None
    if parsed.scheme not in _PORTS:
        raise refused("The URL must begin with http:// or https://.")
    if _USERINFO.match(url):
        raise refused("The URL has a user's name or password in it: leave them out.")
    host = _host(parsed.raw_host.decode("ascii"))
    port = _PORTS[parsed.scheme] if parsed.port is None else parsed.port
    if not rules.allow_host(host):
        raise refused(f"Pages of the host {bounded(host)} are not fetched: it is not among the allowed hosts.")
    if port not in rules.ports:
        raise refused(f"Pages at port {port} are not fetched: it is not among the allowed ports.")
    return Target(parsed.scheme, host, port, parsed.raw_path.decode("ascii"))


def _host(raw: str) -> str:
    host = raw.lower().removesuffix(".")
    try:
        address = ip_address(host)
    except ValueError:
        if not _NAME.fullmatch(host) or len(host) > 253:
            raise refused("The URL's host is not a name that can be looked up.") from None
        if _NUMERIC_END.search(host):
            raise refused("The URL's host is an address in disguise: write it with four decimal numbers.") from None
        return host
    if isinstance(address, IPv6Address) and address.scope_id:
        raise refused("The URL's host is an address with a zone: leave the zone out.")
    return str(address)


def refused(sentence: str) -> UrlRefused:
    """Return the error for a URL that must not be fetched."""
    return UrlRefused(sentence, _STAGE, "url")
