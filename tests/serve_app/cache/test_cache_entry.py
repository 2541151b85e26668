"""An entry answers while it is fresh enough for the request."""

from __future__ import annotations

import pytest
from samples import make_entry

from serve_app.cache.entry import Hit


@pytest.mark.parametrize(
    ("now", "max_age_s", "fresh"),
    [
        (10.0, None, True),
        (109.9, None, True),
        (110.0, None, False),
        (111.0, None, False),
        (40.0, 30.0, True),
        (40.1, 30.0, False),
        (10.0, 0.0, True),
        (10.001, 0.0, False),
        (109.0, 1000.0, True),
        (110.0, 1000.0, False),
        (9.0, 0.0, True),
    ],
)
def test_an_entry_is_fresh_until_it_expires_or_is_older_than_accepted(
    now: float, max_age_s: float | None, fresh: bool
) -> None:
    assert make_entry(created_at=10.0, expires_at=110.0).is_fresh(now, max_age_s) is fresh


@pytest.mark.parametrize(("now", "age_s"), [(10.0, 0.0), (12.5, 2.5), (9.0, 0.0)])
def test_an_age_is_never_negative_even_if_clocks_differ(now: float, age_s: float) -> None:
    assert make_entry(created_at=10.0).age_s(now) == age_s


def test_a_hit_without_a_similarity_is_exact() -> None:
    assert Hit(make_entry()).kind == "exact"


@pytest.mark.parametrize("similarity", [0.0, 0.93, 1.0])
def test_a_hit_with_any_similarity_is_semantic(similarity: float) -> None:
    assert Hit(make_entry(), similarity).kind == "semantic"
