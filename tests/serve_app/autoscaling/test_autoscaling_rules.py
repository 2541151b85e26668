"""Rules that cannot be kept are refused by name."""

from __future__ import annotations

import pytest

from serve_app.autoscaling import ScalingRules


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_replicas", -1),
        ("min_replicas", 5),
        ("late_share", 0.0),
        ("late_share", 1.1),
        ("utilisation", 0.0),
        ("headroom", -0.1),
        ("zero_after_s", -1.0),
        ("max_sleeping", -1),
        ("ttft_objective_s", 0.0),
        ("itl_objective_s", 0.0),
        ("window_s", 0.0),
        ("start_s", -3.0),
        ("requests_per_replica", 0.0),
        ("prefill_tokens_per_s", 0.0),
        ("service_s", 0.0),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        ScalingRules(**{"max_replicas": 4, name: value})  # type: ignore[arg-type]


def test_there_must_be_room_for_one() -> None:
    with pytest.raises(ValueError, match="max_replicas"):
        ScalingRules(min_replicas=0, max_replicas=0)


def test_numbers_are_kept_within_the_bounds() -> None:
    rules = ScalingRules(min_replicas=2, max_replicas=5)
    assert [rules.bounded(number) for number in (0, 2, 4, 9)] == [2, 2, 4, 5]
