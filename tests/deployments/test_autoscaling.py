"""Replicas follow the engines' own load."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deployments.autoscaling import EngineLoadPolicy, autoscaling_config
from serve_app.settings import AutoscalingSettings


def decide(running: list[float], waiting: list[float], target: float = 10) -> int:
    metrics = {"running": dict(enumerate(running)), "waiting": dict(enumerate(waiting))}
    context: Any = SimpleNamespace(aggregated_metrics=metrics)
    return EngineLoadPolicy(target)(context)[0]


@pytest.mark.parametrize(
    ("running", "waiting", "expected"),
    [([], [], 1), ([0], [0], 1), ([10], [0], 1), ([10], [1], 2), ([16, 16], [30, 3], 7)],
)
def test_waiting_requests_count_like_running_ones(
    running: list[float], waiting: list[float], expected: int
) -> None:
    assert decide(running, waiting) == expected


def test_a_replica_that_has_not_reported_yet_is_no_error() -> None:
    context: Any = SimpleNamespace(aggregated_metrics=None)
    assert EngineLoadPolicy(10)(context)[0] == 1


def test_serve_gets_bounds_delays_and_the_policy() -> None:
    config = autoscaling_config(
        AutoscalingSettings(min=1, max=4, target_ongoing_requests=8, upscale_delay_s=3)
    )
    assert (config.min_replicas, config.max_replicas, config.upscale_delay_s) == (1, 4, 3)
    assert config.policy.policy_kwargs == {"target_ongoing_requests": 8.0}
