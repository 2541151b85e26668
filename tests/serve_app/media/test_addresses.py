"""Which addresses are public."""

from __future__ import annotations

import pytest

from serve_app.media.addresses import is_allowed_host, is_public


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_ones(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "2001:db8::1",
        "localhost",
        "",
    ],
)
def test_others_however_they_are_written(address: str) -> None:
    assert not is_public(address)


def test_a_name_below_an_allowed_one_is_allowed() -> None:
    allowed = ("images.example.com", "*.cdn.org")
    assert is_allowed_host("IMAGES.example.com.", allowed)
    assert is_allowed_host("a.b.cdn.org", allowed)
    assert not is_allowed_host("cdn.org", allowed)
    assert not is_allowed_host("evilcdn.org", allowed)
    assert not is_allowed_host("images.example.com.evil.org", allowed)
    assert is_allowed_host("anything", ("*",))
