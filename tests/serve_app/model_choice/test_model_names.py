"""What each name stands for, and whose answers it may share."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.model_choice.names import ModelNames
from serve_app.settings import parse_args
from serve_app.settings.fingerprint import fingerprint

UPSTREAM = {"name": "u", "url": "http://host:8000/v1"}


def names(adapters: dict[str, str] | None = None, **args: Any) -> tuple[ModelNames, dict[str, str]]:
    """The names, and the fingerprint behind each."""
    engine = {"accelerator": "cpu", "lora": {"adapters": adapters or {"poet": "/a/poet", "cook": "/a/cook"}}}
    base = {"id": "base", "source": "owner/base", "engine": engine, "aliases": ["default", "gpt-4o-mini"]}
    models = [base, {"id": "other", "upstreams": [UPSTREAM]}]
    settings = parse_args({"models": models, "embedder": {"id": "e", "source": "e"}} | args, source="test")
    found = ModelNames.of(settings)
    return found, found.fingerprints({model.id: fingerprint(model) for model in settings.models})


def test_every_name_is_listed_with_its_model() -> None:
    found, _ = names(auto_models=[{"id": "auto", "models": ["base"]}])
    assert list(found) == ["base", "poet", "cook", "default", "gpt-4o-mini", "other", "auto", "e"]


@pytest.mark.parametrize(
    ("name", "own", "model"),
    [
        ("base", "base", "base"),
        ("default", "base", "base"),
        ("poet", "poet", "base"),
        ("other", "other", "other"),
    ],
)
def test_an_engine_is_asked_by_the_own_name_and_found_by_the_model(name: str, own: str, model: str) -> None:
    found, _ = names()
    assert (found.own(name), found.model_of(name)) == (own, model)


def test_an_alias_shares_its_models_answers() -> None:
    _, prints = names()
    assert prints["default"] == prints["gpt-4o-mini"] == prints["base"]


def test_adapters_share_answers_with_nobody() -> None:
    _, prints = names()
    assert len({prints[name] for name in ("base", "poet", "cook", "other")}) == 4


def test_an_adapter_more_leaves_the_answers_of_the_others() -> None:
    _, before = names({"poet": "/a/poet"})
    _, after = names({"poet": "/a/poet", "cook": "/a/cook"})
    assert after | before == after


def test_another_adapter_under_the_same_name_has_other_answers() -> None:
    _, before = names()
    _, after = names({"poet": "/a/poet-v2", "cook": "/a/cook"})
    assert before["poet"] != after["poet"]
    _, twins = names({"poet": "/a/poet", "cook": "/a/poet"})
    assert twins["poet"] != twins["cook"]
