"""Names that stand for a choice, and the one list of all names."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.settings import Settings, parse_args

ENGINE: dict[str, Any] = {"accelerator": "cpu", "lora": {"adapters": {"poet": "/a/poet"}}}
SMALL: dict[str, Any] = {"id": "small", "source": "owner/small", "engine": ENGINE, "aliases": ["default"]}
LARGE: dict[str, Any] = {"id": "large", "upstreams": [{"name": "u", "url": "http://host:8000/v1"}]}
AUTO: dict[str, Any] = {"id": "auto", "models": ["small", "large"]}
PRICE = {"input": 0.1, "output": 0.4}


def parsed(**args: Any) -> Settings:
    return parse_args({"models": [SMALL, LARGE], "auto_models": [AUTO]} | args, source="file.yaml")


def message_for(**args: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        parsed(**args)
    (line,) = str(caught.value).splitlines()
    return line


def auto(**fields: Any) -> dict[str, Any]:
    return {"auto_models": [AUTO | fields]}


def test_the_cheapest_that_fits_is_chosen_unless_another_rule_is_named() -> None:
    (found,) = parsed().auto_models
    assert (found.rule, found.tiers, found.answer_tokens) == ("cheapest-that-fits", {}, 256)
    (found,) = parsed(**auto(rule="my_rules:by_language")).auto_models
    assert found.rule == "my_rules:by_language"


@pytest.mark.parametrize("models", [["default", "large"], ["poet"], ["large", "poet", "default", "small"]])
def test_ids_aliases_and_adapters_may_be_chosen_among(models: list[str]) -> None:
    assert parsed(**auto(models=models)).auto_models[0].models == tuple(models)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"models": []}, "auto_models[0].models = []: expected: "),
        ({"models": ["huge"]}, "`auto_models[0].models`: there is no model 'huge'; expected some of: small,"),
        ({"models": ["auto"]}, "`auto_models[0].models`: there is no model 'auto'; expected some of: small,"),
        (
            {"rule": "dearest"},
            "auto_models[0].rule = 'dearest': unknown rule; expected one of: cheapest-that",
        ),
        (
            {"tiers": {"best": ["poet"]}},
            "`tiers.best`: 'poet' is not among `models`; expected one of: small,",
        ),
        ({"tiers": {"best": []}}, "`tiers.best`: names no model; expected one of: small, large"),
        ({"tiers": {"the best": ["large"]}}, "tier 'the best' in `tiers`: expected letters, digits"),
        ({"answer_tokens": 0}, "auto_models[0].answer_tokens = 0: expected: greater than or equal to 1"),
        ({"model": ["small"]}, "auto_models[0].model = ['small']: unknown key; did you mean 'models'?"),
    ],
)
def test_a_wrong_choice_is_named(fields: dict[str, Any], expected: str) -> None:
    assert expected in message_for(**auto(**fields))


@pytest.mark.parametrize(
    ("args", "twice"),
    [
        ({"models": [SMALL, LARGE | {"aliases": ["default"]}]}, "default"),
        ({"models": [SMALL, LARGE | {"aliases": ["small"]}]}, "small"),
        ({"models": [SMALL | {"aliases": ["small"]}, LARGE]}, "small"),
        ({"models": [SMALL | {"aliases": ["x", "x"]}, LARGE]}, "x"),
        ({"models": [SMALL, LARGE | {"aliases": ["poet"]}]}, "poet"),
        ({"models": [SMALL, LARGE | {"aliases": ["e"]}], "embedder": {"id": "e", "source": "e"}}, "e"),
        (auto(id="default"), "default"),
        (auto(id="poet"), "poet"),
        ({"auto_models": [AUTO, AUTO]}, "auto"),
    ],
)
def test_a_name_means_one_thing(args: dict[str, Any], twice: str) -> None:
    assert f"model id given twice: {twice} (ids, aliases, adapters and auto models must all differ)" in (
        message_for(**args)
    )


def test_prices_are_given_to_all_of_a_choice_or_to_none() -> None:
    priced = [SMALL | {"cost_per_million_tokens": PRICE}, LARGE]
    assert "`auto_models[0].models`: 'large' has no `cost_per_million_tokens`" in message_for(models=priced)
    assert parsed(models=priced, **auto(models=["small", "poet"]))
    both = [model | {"cost_per_million_tokens": PRICE} for model in (SMALL, LARGE)]
    assert parsed(models=both)


def test_a_models_own_life_of_entries_is_the_last_rule() -> None:
    cache = {"rules": [{"ttl_s": 60, "prompt": "today"}]}
    models = [SMALL | {"cache_ttl_s": 3600.0}, LARGE]
    args = {"models": models, "cache": cache, "embedder": {"id": "e", "source": "e"}}
    found = parsed(**args).cache_with_models
    assert found is not None
    assert [(rule.ttl_s, rule.model) for rule in found.rules] == [(60, None), (3600, "small"), (3600, "poet")]
    assert parsed().cache_with_models is None
