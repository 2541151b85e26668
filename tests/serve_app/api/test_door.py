"""Which hosts are ours, however many were asked for before."""

from __future__ import annotations

import pytest

from serve_app.api.door import KNOWN_HOSTS, Door
from serve_app.errors import UnknownHost
from serve_app.settings import parse_args

SETTINGS = parse_args(
    {"models": [{"id": "m", "upstreams": [{"name": "u", "url": "http://host:8000/v1"}]}], "auth": "loopback"},
    source="test",
)


def test_hosts_are_judged_alike_the_first_time_and_later() -> None:
    door = Door(SETTINGS)
    for _ in range(2):
        for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "a.localhost"):
            door.admit("POST", {"host": host})
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example"):
            with pytest.raises(UnknownHost):
                door.admit("POST", {"host": host})


def test_more_hosts_than_are_remembered_are_judged_alike() -> None:
    door = Door(SETTINGS)
    for port in range(3 * KNOWN_HOSTS):
        door.admit("POST", {"host": f"localhost:{port}"})
        with pytest.raises(UnknownHost):
            door.admit("POST", {"host": f"evil.example:{port}"})
