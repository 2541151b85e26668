"""A key may be bound to networks, and no client can forge where it comes from."""

from __future__ import annotations

import pytest

from serve_app.errors import Forbidden
from serve_app.request.auth import Identity
from serve_app.request.networks import client_address, require_network

SECRET = "5ecret"
PEER = "127.0.0.1"


@pytest.mark.parametrize(
    ("header", "secret", "address"),
    [
        (f"{SECRET} 10.1.2.3", SECRET, "10.1.2.3"),
        (f"{SECRET} ", SECRET, None),
        ("wrong 10.1.2.3", SECRET, PEER),
        ("10.1.2.3", SECRET, PEER),
        (" 10.1.2.3", SECRET, PEER),
        ("", SECRET, PEER),
        ("\xff 10.1.2.3", SECRET, PEER),
        (None, SECRET, PEER),
        (f"{SECRET} 10.1.2.3", None, PEER),
        ("None 10.1.2.3", None, PEER),
    ],
)
def test_only_the_proxy_of_this_start_says_where_a_client_is(
    header: str | None, secret: str | None, address: str | None
) -> None:
    assert client_address(header, secret, PEER) == address


@pytest.mark.parametrize(
    ("networks", "address", "allowed"),
    [
        (None, None, True),
        (("10.0.0.0/8",), "10.9.8.7", True),
        (("10.0.0.0/8",), "11.0.0.1", False),
        (("192.0.2.0/24", "10.0.0.1/32"), "10.0.0.1", True),
        (("10.0.0.0/8",), "::ffff:10.1.1.1", True),
        (("10.0.0.0/8",), "2001:db8::1", False),
        (("2001:db8::/32",), "2001:db8::1", True),
        (("fe80::/10",), "fe80::1%eth0", True),
        (("10.0.0.0/8",), "10.0.0.1, 11.0.0.1", False),
        (("10.0.0.0/8",), "nowhere", False),
        (("10.0.0.0/8",), None, False),
        ((), "10.0.0.1", False),
    ],
)
def test_a_key_works_in_its_networks_and_nowhere_else(
    networks: tuple[str, ...] | None, address: str | None, allowed: bool
) -> None:
    identity = Identity("acme", networks=networks)
    if allowed:
        require_network(identity, address)
        return
    with pytest.raises(Forbidden) as refused:
        require_network(identity, address)
    assert refused.value.code == "network_not_allowed"
