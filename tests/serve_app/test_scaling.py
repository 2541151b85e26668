"""Replicas are as many as carry the load at the target each, and never none."""

from __future__ import annotations

import random

import pytest

from serve_app.scaling import replicas_needed


@pytest.mark.parametrize(
    ("running", "waiting", "target", "expected"),
    [
        ([], [], 16.0, 1),
        ([0], [0], 16.0, 1),
        ([16], [0], 16.0, 1),
        ([16], [1], 16.0, 2),
        ([16, 16], [0, 0], 16.0, 2),
        ([1], [], 0.5, 2),
        ([3.5, 0.5], [1.0], 2.0, 3),
        ([0], [1000], 1.0, 1000),
    ],
)
def test_the_load_is_shared_at_the_target(
    running: list[float], waiting: list[float], target: float, expected: int
) -> None:
    assert replicas_needed(running, waiting, target) == expected


def test_the_answer_is_the_smallest_number_that_carries_the_load() -> None:
    choose = random.Random(3)
    for _ in range(500):
        running = [choose.randint(0, 50) for _ in range(choose.randint(0, 6))]
        waiting = [choose.randint(0, 50) for _ in range(choose.randint(0, 6))]
        target = choose.choice([1, 2, 7, 16])
        needed = replicas_needed(running, waiting, target)
        load = sum(running) + sum(waiting)
        assert needed * target >= load
        assert needed == 1 or (needed - 1) * target < load


def test_generators_are_accepted() -> None:
    assert replicas_needed((float(n) for n in (4, 4)), (float(n) for n in (0, 4)), 4.0) == 3
