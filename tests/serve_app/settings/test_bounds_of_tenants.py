"""A bound of one tenant that bounds nothing is told at the start."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.settings import parse_args
from serve_app.settings.doubts import OF_A_TENANT, doubts

KEYS = {"auth": {"keys_env": "KEYS"}}
MODELS = [{"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:1/v1"}]}]
NEEDS: dict[str, dict[str, Any]] = {"cache": {"embedder": {"id": "e", "source": "org/e"}}}


def told(**args: Any) -> list[str]:
    return list(doubts(parse_args({"models": MODELS, **args}, source="test")))


@pytest.mark.parametrize(("section", "own", "total"), OF_A_TENANT)
def test_a_bound_of_a_tenant_above_that_of_all_is_doubtful(section: str, own: str, total: str) -> None:
    needs = NEEDS.get(section, {})
    (line,) = told(**needs, **{section: {own: 5_000_001, total: 5_000_000}})
    assert line == (
        f"{section}.{own} = 5000001: more than {section}.{total} = 5000000, so one tenant can take all"
    )
    assert told(**needs, **{section: {own: 5_000_000, total: 5_000_000}}) == []


def test_a_default_is_doubtful_only_beside_a_bound_that_was_set_for_several_tenants() -> None:
    assert told() == told(**KEYS) == []
    assert told(media={"max_uploads": 4}) == []
    assert told(media={"max_uploads": 4}, **KEYS) == [
        "media.max_uploads_per_tenant = 8: more than media.max_uploads = 4, so one tenant can take all"
    ]


def test_bytes_of_a_tenant_that_refuse_the_largest_bodies_are_doubtful() -> None:
    lines = told(limits={"max_held_bytes_per_tenant": 2_000_000})
    assert [line.partition(": ")[2].split(",")[0] for line in lines] == [
        "less than limits.max_conversation_bytes = 33554432",
    ]
