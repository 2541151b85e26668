"""How long answers live."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from serve_app.cache.expiry import expiry_of
from serve_app.cache.keys import CacheKey
from serve_app.settings import CacheSettings

KEY = CacheKey("acme", "chat", "p", UUID(int=1), "What is the weather today?", True)


def ttl_s(
    rules: list[dict[str, Any]], asked_s: float | None = None, tags: tuple[str, ...] = ("news",)
) -> float:
    expiry = expiry_of(CacheSettings.model_validate({"ttl_s": 100, "rules": rules}))
    return expiry.ttl_s(KEY, tags, {"x-team": "legal"}, asked_s)


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({"prompt": r"(?i)\btoday\b"}, True),
        ({"prompt": r"^today"}, False),
        ({"model": "chat"}, True),
        ({"model": "code"}, False),
        ({"tenant": "acme"}, True),
        ({"tenant": "other"}, False),
        ({"tag": "news"}, True),
        ({"tag": "old"}, False),
        ({"headers": {"X-Team": "^legal$"}}, True),
        ({"headers": {"x-team": "sales"}}, False),
        ({"headers": {"x-other": ""}}, False),
        ({"model": "chat", "tag": "old"}, False),
        ({"model": "chat", "tag": "news", "prompt": "weather"}, True),
        ({}, True),
    ],
)
def test_a_rule_fits_where_all_its_parts_do(rule: dict[str, Any], fits: bool) -> None:
    assert ttl_s([{**rule, "ttl_s": 5}]) == (5 if fits else 100)


def test_the_first_rule_that_fits_decides() -> None:
    rules = [{"tag": "old", "ttl_s": 1}, {"prompt": "weather", "ttl_s": 0}, {"ttl_s": 3}]
    assert ttl_s(rules) == 0
    assert ttl_s(rules[2:]) == 3


@pytest.mark.parametrize(("asked_s", "lives_s"), [(None, 5), (2, 2), (7, 5)])
def test_a_request_may_shorten_a_life_and_never_lengthen_it(asked_s: float | None, lives_s: float) -> None:
    assert ttl_s([{"ttl_s": 5}], asked_s=asked_s) == lives_s
    assert ttl_s([{"ttl_s": 0}], asked_s=asked_s) == 0
    assert ttl_s([], asked_s=asked_s) == (100 if asked_s is None else asked_s)
    assert ttl_s([], asked_s=1000) == 100


def test_an_entry_is_stale_between_its_life_and_its_end() -> None:
    expiry = expiry_of(CacheSettings(ttl_s=100, stale_s=20))
    end = expiry.ends_at(1000.0, 100.0)
    assert end == 1120
    assert [expiry.is_stale(end, now) for now in (1000.0, 1099.0, 1100.0, 1119.0)] == [
        False,
        False,
        True,
        True,
    ]
    none = expiry_of(CacheSettings(ttl_s=100))
    assert not none.is_stale(none.ends_at(1000.0, 100.0), 1099.9)


@pytest.mark.parametrize("rule", [{"prompt": "("}, {"headers": {"x-team": "["}}])
def test_what_is_no_expression_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="not a regular expression"):
        CacheSettings.model_validate({"rules": [{**rule, "ttl_s": 1}]})
