"""A model needs something that serves it; what is wrong with one is named."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.routing import POLICIES
from serve_app.settings import ModelSettings, parse_args
from serve_app.settings.policies import known_policy

MANAGED: dict[str, Any] = {"source": "owner/m", "engine": {"accelerator": "cpu"}}
UPSTREAM: dict[str, Any] = {"name": "a", "url": "http://host:8000/v1"}
EXTERNAL: dict[str, Any] = {"upstreams": [UPSTREAM]}


def model(**fields: Any) -> ModelSettings:
    return parse_args({"models": [{"id": "m"} | fields]}, source="file.yaml").models[0]


def message_for(**fields: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        model(**fields)
    return str(caught.value)


def test_managed_replicas_serve_a_model() -> None:
    found = model(**MANAGED)
    assert (found.managed_source, found.managed_engine.accelerator) == ("owner/m", "cpu")
    assert found.upstreams == ()


def test_upstreams_serve_a_model() -> None:
    found = model(**EXTERNAL)
    assert (found.source, found.engine) == (None, None)
    assert [upstream.name for upstream in found.upstreams] == ["a"]


def test_both_serve_a_model() -> None:
    found = model(**MANAGED, **EXTERNAL)
    assert found.engine is not None
    assert len(found.upstreams) == 1


@pytest.mark.parametrize("fields", [{}, {"upstreams": []}, {"cache": False}])
def test_a_model_that_nothing_serves_is_refused(fields: dict[str, Any]) -> None:
    assert message_for(**fields).endswith(
        "nothing serves this model: give `source` and `engine`, or `upstreams`"
    )


@pytest.mark.parametrize("beside", [{}, EXTERNAL])
@pytest.mark.parametrize(("given", "missing"), [("source", "engine"), ("engine", "source")])
def test_one_half_of_managed_replicas_is_refused(given: str, missing: str, beside: dict[str, Any]) -> None:
    message = message_for(**{given: MANAGED[given]}, **beside)
    assert message.endswith(f"`{missing}` is missing: managed replicas need `source` and `engine`")


@pytest.mark.parametrize(("key", "value"), [("replicas", 2), ("replicas", {"max": 3}), ("revision", "v1")])
def test_what_only_managed_replicas_have_is_refused_where_there_are_none(key: str, value: Any) -> None:
    assert f"`{key}` is for managed replicas, but there is no `engine`" in message_for(
        **EXTERNAL, **{key: value}
    )
    assert model(**EXTERNAL, **MANAGED, **{key: value})


def test_an_upstreams_name_is_given_once() -> None:
    twice = [UPSTREAM, UPSTREAM | {"url": "http://other/v1"}, UPSTREAM | {"name": "b"}]
    assert message_for(upstreams=twice).endswith("upstream name given twice: a")


def test_two_models_may_have_upstreams_of_one_name() -> None:
    models = [{"id": name} | EXTERNAL for name in ("m", "n")]
    assert len(parse_args({"models": models}, source="file.yaml").models) == 2


@pytest.mark.parametrize("missing", ["managed_engine", "managed_source"])
def test_managed_parts_are_only_asked_for_where_there_are_some(missing: str) -> None:
    with pytest.raises(AssertionError, match="'m' has no managed replicas"):
        getattr(model(**EXTERNAL), missing)


@pytest.mark.parametrize(
    ("hedge", "expected"),
    [
        ({}, "models[0].hedge.max_share is missing: expected a value"),
        ({"max_share": 0}, "models[0].hedge.max_share = 0: expected: greater than 0"),
        ({"max_share": 0.6}, "models[0].hedge.max_share = 0.6: expected: less than or equal to 0.5"),
        ({"max_share": 0.1, "quantile": 1.0}, "models[0].hedge.quantile = 1.0: expected: less than 1"),
        ({"max_share": 0.1, "quantile": 0.4}, "models[0].hedge.quantile = 0.4: expected: greater than or"),
        ({"share": 0.1}, "models[0].hedge.share = 0.1: unknown key; did you mean 'max_share'?"),
        (True, "models[0].hedge = True: expected: "),
    ],
)
def test_a_wrong_hedge_is_named(hedge: Any, expected: str) -> None:
    assert expected in message_for(**MANAGED, hedge=hedge)


def test_hedging_is_off_unless_it_is_given() -> None:
    assert model(**MANAGED).hedge is None
    hedge = model(**MANAGED, hedge={"max_share": 0.05}).hedge
    assert hedge is not None
    assert (hedge.max_share, hedge.quantile) == (0.05, 0.95)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("id", "", "models[0].id = '': expected: "),
        ("source", "", "models[0].source = '': expected: "),
        ("max_requests_per_replica", 0, "models[0].max_requests_per_replica = 0: expected: greater than or"),
        ("drain_timeout_s", -1, "models[0].drain_timeout_s = -1: expected: greater than or equal to 0"),
        ("upstreams", {}, "models[0].upstreams = {}: expected: "),
        ("upstreams", "http://host/v1", "models[0].upstreams = 'http://host/v1': expected: "),
        ("upstreams", ["http://host/v1"], "models[0].upstreams[0] = 'http://host/v1': expected: "),
        ("upstream", [], "models[0].upstream = []: unknown key; did you mean 'upstreams'?"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, expected: str) -> None:
    assert f"file.yaml: {expected}" in message_for(**(MANAGED | {key: value}))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_registered_policy_may_be_named(name: str) -> None:
    assert known_policy(name) == name
    assert model(**MANAGED, routing=name).routing == name
    assert (
        parse_args(
            {"models": [{"id": "m"} | MANAGED], "gateway": {"routing": name}}, source="f"
        ).gateway.routing
        == name
    )


@pytest.mark.parametrize("name", ["", "random", "Least_Wait", "least_wait "])
def test_a_policy_that_is_not_registered_is_refused_with_the_known_ones(name: str) -> None:
    expected = f"unknown routing policy; expected one of: {', '.join(sorted(POLICIES))}"
    with pytest.raises(ValueError, match="unknown routing policy") as caught:
        known_policy(name)
    assert str(caught.value) == expected
    assert message_for(**MANAGED, routing=name) == f"file.yaml: models[0].routing = {name!r}: {expected}"


def test_a_model_goes_by_the_gateways_policy_unless_it_names_its_own() -> None:
    assert model(**MANAGED).routing is None


LORA = {"engine": {"accelerator": "cpu", "lora": {"adapters": {"poet": "/a/poet", "cook": "owner/cook"}}}}


def test_adapters_are_those_of_the_engine() -> None:
    assert model(**MANAGED).adapters == {}
    assert model(**EXTERNAL).adapters == {}
    assert model(**(MANAGED | LORA)).adapters == {"poet": "/a/poet", "cook": "owner/cook"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (LORA | EXTERNAL, "`upstreams` do not know the adapters of `engine.lora`: give them a model of"),
        ({"aliases": ["a", ""]}, "an alias in `aliases` is empty"),
        ({"aliases": "gpt"}, "models[0].aliases = 'gpt': expected: "),
        ({"cache": False, "cache_ttl_s": 60.0}, "`cache_ttl_s` has no effect with `cache: false`"),
        ({"cache": False, "cache_threshold": 0.9}, "`cache_threshold` has no effect with `cache: false`"),
        ({"cache_ttl_s": 0.0}, "models[0].cache_ttl_s = 0.0: expected: greater than 0"),
        ({"cache_threshold": 1.5}, "models[0].cache_threshold = 1.5: expected: less than or equal to 1"),
        (
            {"cost_per_million_tokens": {"input": -1.0, "output": 1.0}},
            "models[0].cost_per_million_tokens.input = -1.0: expected: greater than or equal to 0",
        ),
        (
            {"cost_per_million_tokens": {"input": 1.0}},
            "models[0].cost_per_million_tokens.output is missing: expected a value",
        ),
    ],
)
def test_what_is_wrong_with_how_a_model_is_offered_is_named(fields: dict[str, Any], expected: str) -> None:
    assert expected in message_for(**(MANAGED | fields))
