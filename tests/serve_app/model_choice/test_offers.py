"""What is offered under each name of a model."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import EmbedderOnly, NotFound, UnknownModel
from serve_app.model_choice.names import ModelNames
from serve_app.model_choice.offers import Offers
from serve_app.settings import parse_args

CHAT = "/v1/chat/completions"


def offers(**args: Any) -> Offers:
    upstream = {"name": "u", "url": "http://host:8000/v1"}
    models = [
        {"id": "base", "aliases": ["default"], "upstreams": [upstream]},
        {"id": "scorer", "upstreams": [{**upstream, "paths": ["/v1/score"]}]},
    ]
    settings = parse_args({"models": models, "embedder": {"id": "e", "source": "e"}} | args, source="test")
    return Offers(settings, ModelNames.of(settings))


def test_an_alias_offers_what_its_model_does() -> None:
    found = offers()
    found.require(CHAT, "default")
    assert found.fingerprint("default") == found.fingerprint("base") != found.fingerprint("scorer")


def test_a_path_is_offered_by_its_own_models_only() -> None:
    found = offers()
    found.require("/v1/score")
    with pytest.raises(NotFound) as caught:
        found.require(CHAT, "scorer")
    assert caught.value.code == "path_not_offered"


def test_names_without_an_engine_are_refused_by_name() -> None:
    found = offers()
    with pytest.raises(EmbedderOnly):
        found.fingerprint("e")
    with pytest.raises(UnknownModel, match="default"):
        found.fingerprint("nothing")
