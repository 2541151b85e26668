"""The ports of a start."""

from __future__ import annotations

import os
import socket
from dataclasses import astuple

import pytest

from deployments.cli.main import main
from deployments.launcher.plan import metrics_url
from deployments.launcher.ports import FREE_PORT_RANGE, METRICS_PORT, Claims, pick_ports, port_is_free

UNIX_SOCKET_PATH_BYTES = 107


def test_a_port_is_free_until_someone_listens_on_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not port_is_free("127.0.0.1", port)
        assert not port_is_free("0.0.0.0", port)
    assert port_is_free("127.0.0.1", port)


@pytest.mark.parametrize("text", ["0", "-1", "65536", "eighty"])
def test_a_number_that_no_port_has_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--port", text])
    assert "invalid port" in capsys.readouterr().err


def test_picked_ports_are_distinct_free_and_not_those_taken() -> None:
    taken = frozenset({8265, 9101, 8404})

    with Claims() as claims:
        ports = astuple(pick_ports(claims, taken))

    assert len(set(ports)) == len(ports)
    assert not taken & set(ports)
    assert all(port_is_free("0.0.0.0", port) for port in ports)


def test_the_port_of_the_metrics_is_the_usual_one_where_it_is_free() -> None:
    with Claims() as claims:
        ports = pick_ports(claims, frozenset(range(9_103, 9_110)))
    if port_is_free("0.0.0.0", METRICS_PORT):
        assert metrics_url(ports) == "http://127.0.0.1:9102/metrics"
    else:
        assert ports.ray_metrics in FREE_PORT_RANGE


def test_two_starts_at_once_choose_different_ports_although_nobody_listens_yet() -> None:
    with Claims() as one, Claims() as two:
        ports = astuple(pick_ports(one)) + astuple(pick_ports(two))
        assert len(set(ports)) == len(ports)


def test_what_a_start_claimed_can_be_claimed_when_it_has_ended() -> None:
    port = 100_000 + os.getpid()  # no start of this machine takes it meanwhile
    with Claims() as one, Claims() as two:
        assert one.claim(port)
        assert not two.claim(port)
        one.close()
        assert two.claim(port)
