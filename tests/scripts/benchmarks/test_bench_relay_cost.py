"""The benchmark of a token's CPU time: whose time it is, and what it is compared with."""

from __future__ import annotations

import os

import pytest
from benchmarks.load import own_cpu_seconds
from benchmarks.peers.haproxy_alone import config
from benchmarks.relay_cost import HAPROXY, PROMPTLY, RAY, Cost, figures_of, part_of, used_by


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("ray::ServeReplica:promptly:Gateway.handle ", "gateway"),
        ("ray::ServeReplica:promptly:Responses ", "others"),
        ("/tmp/x/bin/haproxy -db -f /tmp/x/haproxy.cfg ", "HAProxy"),
        ("ray::FrontDoorManager ", "others"),
        ("python -m deployments.cli serve /tmp/haproxy/config.yaml ", "others"),
        ("", "others"),
    ],
)
def test_each_process_is_one_part(command: str, part: str) -> None:
    assert part_of(command) == part


def test_the_time_of_a_process_is_without_its_children() -> None:
    used = used_by([os.getpid()])
    assert used["others"] == pytest.approx(own_cpu_seconds(os.getpid()), abs=1.0)
    assert used["gateway"] == used["HAProxy"] == 0


def test_all_parts_count_and_the_peer_is_that_of_the_same_repeat() -> None:
    def cost(haproxy: float, gateway: float) -> Cost:
        return Cost({"HAProxy": haproxy, "gateway": gateway, "others": 0.01}, 0)

    figures = figures_of(
        {
            PROMPTLY: [cost(0.02, 0.03), cost(0.03, 0.05)],
            HAPROXY: [cost(0.03, 0.0)] * 2,
            RAY: [cost(0.02, 0.09), cost(0.02, 0.15)],
        }
    )
    total, ratio, errors = [figure.values for figure in figures if figure.target is not None]
    assert total == pytest.approx((0.06, 0.09))
    assert ratio == pytest.approx((0.5, 0.5))
    assert errors == (0, 0)


def test_haproxy_alone_passes_on_to_the_engine() -> None:
    text = config(8000, "http://127.0.0.1:9000")
    assert "bind 127.0.0.1:8000" in text
    assert "server engine 127.0.0.1:9000\n" in text
