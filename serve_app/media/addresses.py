"""Which hosts and addresses media may be fetched from."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""Addresses that stand for an IPv4 address behind a translator (RFC 6052, RFC 8215)."""


def is_public(address: str) -> bool:
    """Whether an address is one of the public Internet, however it is written. Addresses that carry another
    one count as what they carry."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(map(_is_global, _meant(found)))


def _meant(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inside: list[IPv4Address | IPv6Address] = [address]
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside.extend(address.teredo)
    if any(address in network for network in NAT64):
        return [IPv4Address(address.packed[-4:])]
    return inside


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_allowed_host(host: str, allowed: Iterable[str]) -> bool:
    """``allowed``: hosts, ``*.example.com`` for all names below one, ``*`` for any."""
    name = host.lower().rstrip(".")
    return any(
        pattern in ("*", name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))
        for pattern in allowed
    )
