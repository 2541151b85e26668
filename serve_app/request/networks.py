"""Where a request comes from, and whether its key may be used there."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from serve_app.errors import Forbidden
from serve_app.request.auth import Identity

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

KEPT_LISTS = 4096


def client_address(header: str | None, secret: str | None, peer: str | None) -> str | None:
    """The address that HAProxy saw; without its word that of the connection, which no client can forge
    either. ``secret`` is ``None`` where no HAProxy of ours stands in front."""
    if header is not None and secret is not None:
        given, _, address = header.partition(" ")
        if hmac.compare_digest(given.encode("latin-1"), secret.encode("latin-1")):
            return address.strip() or None
    return peer


def require_network(identity: Identity, address: str | None) -> None:
    """Raises: Forbidden: the key may be used in other networks only, or it is not known where this is."""
    networks = identity.networks
    if networks is None:
        return
    found = _address(address)
    if found is not None and any(
        found in each for each in _parsed(networks) if each.version == found.version
    ):
        return
    raise Forbidden(
        f"This API key may not be used from {address or 'an unknown address'}.", code="network_not_allowed"
    )


def _address(text: str | None) -> Address | None:
    """An IPv4 address stays one when it comes over IPv6."""
    if text is None:
        return None
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


@lru_cache(maxsize=KEPT_LISTS)
def _parsed(networks: Sequence[str]) -> tuple[Network, ...]:
    """``networks`` is a tuple: parsing takes longer than all else in the gate."""
    return tuple(ipaddress.ip_network(each) for each in networks)
