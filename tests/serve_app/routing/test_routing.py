"""Policies order the candidates, best first, and do nothing else."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest
from samples import make_member

from serve_app.fleet import Member
from serve_app.routing import POLICIES, RoutingPolicy
from serve_app.routing.least_loaded import least_loaded
from serve_app.settings import GatewaySettings


def names(members: list[Member]) -> list[str]:
    return [member.name for member in members]


def some_members(choose: random.Random) -> list[Member]:
    return [
        make_member(
            f"replica-{number}",
            in_flight=choose.randint(0, 3),
            running=choose.randint(0, 3),
            waiting=choose.randint(0, 1),
            kv_cache_usage=choose.choice([0.0, 0.5, 0.9]),
        )
        for number in range(choose.randint(0, 8))
    ]


def test_the_default_policy_of_the_settings_is_registered() -> None:
    assert GatewaySettings().routing in POLICIES
    assert POLICIES["least_loaded"] is least_loaded


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_orders_all_candidates_and_changes_none(policy: RoutingPolicy) -> None:
    choose = random.Random(11)
    for _ in range(200):
        members = some_members(choose)
        before = deepcopy(members)
        ordered = policy(members)
        assert members == before
        assert sorted(names(ordered)) == sorted(names(members))
        assert {id(member) for member in ordered} == {id(member) for member in members}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_accepts_no_candidates_and_a_tuple(policy: RoutingPolicy) -> None:
    assert policy(()) == []
    assert names(policy((make_member("a"),))) == ["a"]


def test_the_least_loaded_comes_first_whatever_the_order_of_the_candidates() -> None:
    choose = random.Random(5)
    for _ in range(200):
        members = some_members(choose)
        ordered = least_loaded(members)
        loads = [member.load for member in ordered]
        assert loads == sorted(loads)
        choose.shuffle(members)
        assert names(least_loaded(members)) == names(ordered)


def test_requests_weigh_more_than_the_kv_cache() -> None:
    busy = make_member("a", running=2, kv_cache_usage=0.0)
    idle = make_member("b", running=1, kv_cache_usage=0.99)
    assert names(least_loaded([busy, idle])) == ["b", "a"]


def test_among_equal_loads_the_member_that_this_gateway_uses_less_comes_first() -> None:
    ours = make_member("a", running=2, in_flight=2, kv_cache_usage=0.0)
    others = make_member("b", running=2, in_flight=0, kv_cache_usage=0.5)
    assert names(least_loaded([ours, others])) == ["b", "a"]


def test_among_equals_the_emptier_kv_cache_comes_first_and_then_the_name() -> None:
    members = [make_member("c", kv_cache_usage=0.1), make_member("b"), make_member("a", kv_cache_usage=0.1)]
    assert names(least_loaded(members)) == ["b", "a", "c"]


def test_a_burst_is_spread_evenly_between_two_reports() -> None:
    members = [make_member(name) for name in "abc"]
    for _ in range(9):
        least_loaded(members)[0].in_flight += 1
    assert [member.in_flight for member in members] == [3, 3, 3]
