"""What all gateways use together never exceeds the limit, and each gets what it needs."""

from __future__ import annotations

import random

import pytest

from serve_app.gateways.shares import Share, room, shares


@pytest.mark.parametrize(
    ("most", "demands", "expected"),
    [
        (100, {"a": 0, "b": 0}, {"a": 50, "b": 50}),
        (100, {"a": 90, "b": 0}, {"a": 95, "b": 5}),
        (100, {"a": 900, "b": 10}, {"a": 90, "b": 10}),
        (100, {"a": 900, "b": 900}, {"a": 50, "b": 50}),
        (101, {"a": 900, "b": 900}, {"a": 51, "b": 50}),
        (8, {"a": 20, "b": 2}, {"a": 6, "b": 2}),
        (2, {"a": 9, "b": 0, "c": 0}, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_a_limit_is_shared_by_need(most: int, demands: dict[str, int], expected: dict[str, int]) -> None:
    assert shares(most, demands) == expected


def test_shares_always_add_up_to_the_limit_and_nobody_has_none() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        demands = {
            f"g{number}": rng.choice([0, 0, rng.randrange(500)]) for number in range(rng.randint(1, 9))
        }
        most = rng.randint(len(demands), 1000)
        found = shares(most, demands)
        assert sum(found.values()) == most
        assert min(found.values()) >= 1


def test_one_gateway_has_all() -> None:
    share = Share("a")
    share.learn({"a": 5})
    assert share.of(2048) == 2048


def test_before_the_others_are_known_each_takes_an_equal_part() -> None:
    assert Share("a", 4).of(100) == 25


def test_a_share_grows_when_the_others_have_seen_that_theirs_shrinks_and_shrinks_at_once() -> None:
    busy, idle = Share("a", 2), Share("b", 2)
    for share in (busy, idle):
        share.learn({"a": 0, "b": 0})
        share.learn({"a": 900, "b": 0})
    assert (busy.of(100), idle.of(100)) == (50, 1)
    for share in (busy, idle):
        share.learn({"a": 900, "b": 0})
    assert busy.of(100) == 99
    for share in (busy, idle):
        share.learn({"a": 900, "b": 900})
    assert (busy.of(100), idle.of(100)) == (50, 1)


def test_the_part_of_a_gateway_that_died_falls_to_the_others_after_two_rounds() -> None:
    share = Share("a", 2)
    share.learn({"a": 9, "b": 9})
    share.learn({"a": 9})
    assert share.of(10) == 5
    share.learn({"a": 9})
    assert share.of(10) == 10


@pytest.mark.parametrize(
    ("demands", "running", "expected"),
    [
        ({"a": 24, "b": 40}, {"a": 12, "b": 12}, {"a": 12, "b": 12}),
        ({"a": 24, "b": 40}, {"a": 24, "b": 0}, {"a": 12, "b": 0}),
        ({"a": 20, "b": 40}, {"a": 20, "b": 4}, {"a": 12, "b": 4}),
        ({"a": 20, "b": 40, "c": 40}, {"a": 20, "b": 2, "c": 1}, {"a": 8, "b": 2, "c": 2}),
        ({"a": 20, "b": 40, "c": 40}, {"a": 23, "b": 0, "c": 0}, {"a": 8, "b": 1, "c": 0}),
        ({"a": 20, "b": 40, "c": 0}, {"a": 30, "b": 0, "c": 0}, {"a": 12, "b": 0, "c": 0}),
    ],
)
def test_who_runs_more_than_its_share_leaves_the_others_less(
    demands: dict[str, int], running: dict[str, int], expected: dict[str, int]
) -> None:
    assert room(24, demands, running) == expected


def test_gateways_that_admit_what_they_may_never_run_more_than_the_limit_once_demand_moves() -> None:
    """``a`` has filled the limit alone; ``b`` is asked then, while ``a``'s requests end one by one."""
    most, running = 24, {"a": 23, "b": 0}
    both = {name: Share(name, 2) for name in running}
    for round_ in range(30):
        demands = {"a": running["a"] + 50, "b": running["b"] + 50 * (round_ > 1)}
        reported = dict(running)
        for share in both.values():
            share.learn(demands, reported)
        running["a"] -= running["a"] > 0
        for name, share in both.items():
            running[name] = max(running[name], share.room(most))
        assert sum(running.values()) <= most
    assert running == {"a": 12, "b": 12}
