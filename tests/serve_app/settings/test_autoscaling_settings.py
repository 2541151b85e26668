"""Bounds that contradict each other are refused, and so is what would have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.autoscaling import ScalingRules
from serve_app.errors import SettingsError
from serve_app.settings import AutoscalingSettings, parse_args


def replicas(**fields: Any) -> Any:
    model = {"id": "m", "source": "owner/m", "engine": {"accelerator": "cpu"}, "replicas": fields}
    return parse_args({"models": [model]}, source="file.yaml").models[0].replicas


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"min": 3, "max": 2}, "`min` (3) is greater than `max` (2)"),
        ({"min": -1, "max": 2}, "min"),
        ({"max": 0}, "max"),
        ({"min": 1}, "max"),
        ({"max": 2, "ttft_objective_s": 0}, "ttft_objective_s"),
        ({"max": 2, "late_share": 1.5}, "late_share"),
        ({"max": 2, "zero_after_s": 60.0}, "`zero_after_s` is for `min: 0`, and `min` is 1: leave it out"),
        ({"max": 2, "sleeping": 3}, "`sleeping` (3) is greater than `max` (2)"),
        ({"max": 2, "target_ongoing_requests": 8}, "target_ongoing_requests"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        replicas(**fields)
    assert said in str(caught.value)


def test_a_fleet_may_end_when_nobody_asks() -> None:
    found = replicas(min=0, max=2, zero_after_s=60.0)
    assert (found.min, found.max, found.zero_after_s) == (0, 2, 60.0)


def test_replicas_whose_prompts_others_prefill_cannot_sleep() -> None:
    engine = {"accelerator": "cpu", "disaggregation": {"prefill_replicas": 1}}
    model = {"id": "m", "source": "owner/m", "engine": engine, "replicas": {"max": 2, "sleeping": 1}}
    with pytest.raises(
        SettingsError, match=r"`replicas\.sleeping` cannot be had with `engine\.disaggregation`"
    ):
        parse_args({"models": [model]}, source="file.yaml")


def test_defaults_are_those_of_the_policy() -> None:
    rules, settings = ScalingRules(max_replicas=1), AutoscalingSettings(max=1)
    assert settings.sleeping == rules.max_sleeping
    for name in type(settings).model_fields.keys() - {"min", "max", "sleeping"}:
        assert getattr(settings, name) == getattr(rules, name), name
