"""Connections to public addresses alone: a name is looked up once, and what was checked is what is connected to.

Checking a name first and letting the HTTP client look it up again would leave a gap in which the name can be pointed
elsewhere (DNS rebinding). So the check sits where the client opens its socket; the header ``Host`` and the name in the
TLS handshake stay those of the URL.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore

from app.apps.fetching.targets import refused
from app.errors import UpstreamFailed, bounded

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# Beside what `ipaddress` knows as not global. The Python releases differ in the first ones.
_CLOSED: tuple[Network, ...] = (
    IPv4Network("100.64.0.0/10"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("168.63.129.16/32"),  # Azure's metadata and name service, a public address by its number
    IPv6Network("::/96"),  # IPv4-compatible, given up long ago
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("fec0::/10"),
)
# IPv6 addresses behind which a gateway reaches the IPv4 address in their last 32 bits.
_NAT64 = IPv6Network("64:ff9b::/96")


def is_open(address: Address, private: Sequence[Network] = ()) -> bool:
    """Tell whether an address is public, or in one of the ``private`` networks; so must be what it stands for."""
    return all(_is_public(each) or any(each in network for network in private) for each in _meant(address))


def _is_public(address: Address) -> bool:
    if address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return address.is_global and not any(address in network for network in _CLOSED)


def _meant(address: Address) -> Sequence[Address]:
    """Return the IPv4 addresses that an IPv6 address leads to, where it does, else the address itself."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address, address.sixtofour)
    if address.teredo is not None:
        return (address, *address.teredo)
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return (address,)


async def look_up(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host by the machine's own resolver. Raises :class:`OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Opens sockets to addresses that :func:`is_open` lets through.

    Args:
        private: networks that are let through although they are private.
        resolve: the look-up, ``look_up`` outside of tests.
    """

    def __init__(self, private: Sequence[Network], resolve: Resolve = look_up) -> None:
        self._private = private
        self._resolve = resolve
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature; the whole fetch has one limit
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Look the host up, check every address, connect to the first that answers.

        Raises :class:`app.errors.UrlRefused` when one of them is not public, for such a name is a trap,
        :class:`app.errors.UpstreamFailed` when there is none, and httpcore's errors.
        """
        failure: Exception | None = None
        for address in await self._checked(host, port):
            try:
                return await self._sockets.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or _unknown(host)

    async def _checked(self, host: str, port: int) -> list[Address]:
        try:
            addresses = [ip_address(found) for found in await self._resolve(host, port)]
        except (OSError, UnicodeError):
            raise _unknown(host) from None
        if not all(is_open(address, self._private) for address in addresses):
            # The address itself is not told: callers would learn what names of the inside point to.
            raise refused(f"The host {bounded(host)} leads to an address that is not public.")
        return addresses


def _unknown(host: str) -> UpstreamFailed:
    return UpstreamFailed(f"The host {bounded(host)} cannot be looked up.", "fetcher")
