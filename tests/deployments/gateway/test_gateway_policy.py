"""What Serve's controller and the gateways tell each other about the number of gateways."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from support.graph import eventually

from deployments.gateway.autoscaling import CPU, LAG, GatewayPolicy, LoopWatch, paces_of
from deployments.graph import gateway_replicas
from serve_app.autoscaling.gateways import LATE_FOR_S, GatewayPace
from serve_app.engines.placement import gateway_bounds
from serve_app.settings import Settings, parse_args

GPU = {"accelerator": "gpu", "tensor_parallel_size": 2}


def settings(engine: dict[str, Any], replicas: Any = 1, **gateway: Any) -> Settings:
    model = {"id": "m", "source": "org/m", "engine": engine, "replicas": replicas}
    return parse_args({"models": [model], "gateway": gateway}, source="test")


def context(target: int, **reports: tuple[float, float]) -> Any:
    series = {
        name: {replica: [SimpleNamespace(value=values[place])] for replica, values in reports.items()}
        for place, name in enumerate((LAG, CPU))
    }
    return SimpleNamespace(target_num_replicas=target, running_replicas=list(reports), raw_metrics=series)


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (settings({"accelerator": "cpu"}), (1, 1)),
        (settings({"accelerator": "cpu"}, max_replicas=3), (1, 3)),
        (settings(GPU), (2, 4)),
        (settings(GPU, replicas={"min": 1, "max": 4}), (2, 14)),
        (settings(GPU, replicas={"min": 0, "max": 4}), (1, 14)),
        (settings(GPU, replicas={"min": 1, "max": 4}, max_replicas=5), (2, 5)),
        (settings(GPU, replicas=4, max_replicas=1), (1, 1)),
        (settings(GPU, replicas=4), (7, 14)),
    ],
)
def test_the_gateways_follow_from_the_gpus(given: Settings, bounds: tuple[int, int]) -> None:
    assert gateway_bounds(given) == bounds


def test_a_number_in_the_settings_is_that_number() -> None:
    model = {"id": "m", "source": "org/m", "engine": GPU, "replicas": 8}
    fixed = parse_args({"models": [model], "gateway": {"replicas": 3}}, source="test")
    assert gateway_replicas(fixed) == {"num_replicas": 3}
    span = parse_args({"models": [model], "gateway": {"replicas": 3, "max_replicas": 6}}, source="test")
    options = gateway_replicas(span)["autoscaling_config"]
    assert (options.min_replicas, options.max_replicas) == (3, 6)
    assert options.policy.policy_kwargs == {"fewest": 3, "most": 6, "max_lag_s": 0.05}


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`max_replicas` \(1\) is smaller than `replicas` \(2\)"):
        parse_args(
            {
                "models": [{"id": "m", "source": "org/m", "engine": GPU}],
                "gateway": {"replicas": 2, "max_replicas": 1},
            },
            source="test",
        )


def test_serve_s_metrics_become_decisions_once_a_second() -> None:
    policy = GatewayPolicy(fewest=1, most=4, max_lag_s=0.05)
    late = context(1, a=(0.3, 0.9))
    for tenth in range(int(10 * LATE_FOR_S)):
        assert policy.decide(late, 100.0 + tenth / 10) == 1
    assert policy.decide(late, 101.0 + LATE_FOR_S) == 2


def test_a_gateway_that_has_not_reported_is_no_calm_one() -> None:
    given = context(2, a=(0.3, 0.9))
    given.running_replicas.append("b")
    assert paces_of(given) == [GatewayPace(0.3, 0.9)]
    assert paces_of(SimpleNamespace(raw_metrics=None, running_replicas=["a"])) == []


async def test_a_gateway_measures_its_own_loop() -> None:
    watch = LoopWatch()
    try:

        async def is_busy() -> bool:
            end = time.monotonic() + 0.3
            while time.monotonic() < end:  # the loop stands still, and the core works
                pass
            found = watch.metrics()
            return found[LAG] > 0.01 and found[CPU] > 0.02

        assert await eventually(is_busy, within_s=30)
    finally:
        await watch.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
