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
        ({"max": 2, "sleep_level": 2}, "`sleep_level` is for `sleeping` replicas, and `sleeping` is 0"),
        ({"max": 2, "sleeping": 1, "sleep_level": 3}, "sleep_level"),
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
        SettingsError, match=r"`replicas\.sleeping` does not work with `engine\.disaggregation`"
    ):
        parse_args({"models": [model]}, source="file.yaml")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"lora": {"adapters": {"a": "/a"}}}, "use 1, or leave out `engine.lora`"),
        (
            {"speculation": {"method": "eagle3", "num_speculative_tokens": 2, "model": "owner/head"}},
            "use 1, or an `engine.speculation` without weights (ngram or suffix)",
        ),
        ({"options": {"load_format": "dummy"}}, "use 1, or leave out 'dummy'"),
        ({"options": {"cpu_offload_gb": 2}}, "use 1, or leave out `options.cpu_offload_gb`"),
    ],
)
def test_what_is_not_read_again_after_a_deep_sleep_is_refused(engine: dict[str, Any], said: str) -> None:
    deep = {"max": 2, "sleeping": 1, "sleep_level": 2}
    model = {"id": "m", "source": "owner/m", "engine": {"accelerator": "cpu"} | engine, "replicas": deep}
    with pytest.raises(SettingsError) as caught:
        parse_args({"models": [model]}, source="file.yaml")
    assert said in str(caught.value)
    assert "`replicas.sleep_level: 2`" in str(caught.value)


def test_a_deep_sleep_is_for_a_model_whose_weights_are_all_its_own() -> None:
    ngram = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}
    engine = {"accelerator": "cpu", "speculation": ngram, "options": {"load_format": "safetensors"}}
    deep = {"max": 2, "sleeping": 1, "sleep_level": 2}
    model = {"id": "m", "source": "owner/m", "engine": engine, "replicas": deep}
    assert parse_args({"models": [model]}, source="file.yaml").models[0].sleep_level == 2


def test_defaults_are_those_of_the_policy() -> None:
    rules, settings = ScalingRules(max_replicas=1), AutoscalingSettings(max=1)
    assert settings.sleeping == rules.max_sleeping
    for name in type(settings).model_fields.keys() - {"min", "max", "sleeping", "sleep_level"}:
        assert getattr(settings, name) == getattr(rules, name), name
