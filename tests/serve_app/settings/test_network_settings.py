"""The range of ports in which replicas listen."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.settings import parse_args
from serve_app.settings.network import ANY_PORT

MODEL = {"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:9/v1"}]}


def ports(**network: Any) -> range:
    return parse_args({"models": [MODEL], "network": network}, source="test").network.private_ports


def test_both_ends_belong_to_the_range() -> None:
    assert ports(min_port=20000, max_port=20002) == range(20000, 20003)
    assert ports(min_port=20000, max_port=20000) == range(20000, 20001)


def test_without_a_range_the_kernel_chooses() -> None:
    assert ports() == ANY_PORT
    assert list(ANY_PORT) == [0]


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ({"min_port": 20000}, "`max_port` is missing"),
        ({"max_port": 20000}, "`min_port` is missing"),
        (
            {"min_port": 20001, "max_port": 20000},
            r"`min_port` \(20001\) is greater than `max_port` \(20000\)",
        ),
        ({"min_port": 80, "max_port": 20000}, "network.min_port"),
        ({"min_port": 20000, "max_port": 65536}, "network.max_port"),
    ],
)
def test_what_is_no_range_is_refused_by_its_name(network: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        ports(**network)
