"""What leaves a full cache."""

from __future__ import annotations

import pytest

from serve_app.cache.eviction import Bounds, Volume, surplus, worth


def entries(**held: int) -> dict[str, Volume]:
    return {tenant: Volume(count, 10 * count) for tenant, count in held.items()}


def test_nothing_leaves_while_every_bound_holds() -> None:
    assert surplus(entries(a=50, b=50), Bounds(100, 1000, 50)) == {}
    assert surplus({}, Bounds(1)) == {}


def test_one_tenant_alone_may_fill_the_cache() -> None:
    assert surplus(entries(a=100), Bounds(100)) == {}
    assert surplus(entries(a=101), Bounds(100)) == {"a": Volume(6)}


def test_who_floods_the_cache_pushes_out_its_own_entries_alone() -> None:
    given = surplus(entries(flood=5000, small=40, smaller=3), Bounds(1000))
    assert given.keys() == {"flood"}
    assert 5000 - given["flood"].entries + 43 == 950


def test_two_that_hold_more_than_their_share_give_down_to_the_same_level() -> None:
    held = entries(a=700, b=500, c=100)
    given = surplus(held, Bounds(1000))
    left = {tenant: held[tenant].entries - given.get(tenant, Volume()).entries for tenant in held}
    assert left == {"a": 425, "b": 425, "c": 100}


def test_bytes_are_bounded_as_entries_are() -> None:
    held = {"wordy": Volume(10, 9_000), "terse": Volume(500, 2_000)}
    assert surplus(held, Bounds(1000, 10_000)) == {"wordy": Volume(0, 1_500)}


def test_a_quota_holds_though_the_cache_has_room() -> None:
    assert surplus(entries(a=201, b=200), Bounds(1000, tenant_entries=200)) == {"a": Volume(11)}


def test_a_small_cache_has_no_slack() -> None:
    assert surplus(entries(a=4), Bounds(3)) == {"a": Volume(1)}


@pytest.mark.parametrize("bound", [1, 2, 7, 95])
def test_what_is_left_is_within_the_bound(bound: int) -> None:
    held = entries(a=31, b=17, c=1, d=64)
    given = surplus(held, Bounds(bound))
    left = sum(volume.entries - given.get(tenant, Volume()).entries for tenant, volume in held.items())
    assert left <= bound


def test_worth_rises_with_use_and_cost_and_falls_with_size() -> None:
    base = worth(0.0, 1, 100, 1000)
    assert worth(0.0, 2, 100, 1000) > base
    assert worth(0.0, 1, 200, 1000) > base
    assert worth(0.0, 1, 100, 2000) < base
    assert worth(0.5, 1, 100, 1000) == pytest.approx(base + 0.5)


def test_what_is_not_used_any_more_falls_behind_what_comes_later() -> None:
    popular_once = worth(0.0, 8, 100, 1000)
    assert worth(1.0, 1, 100, 1000) > popular_once
