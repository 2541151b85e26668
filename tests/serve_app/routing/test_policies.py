"""What every registered policy keeps: it orders the candidates, and does nothing else."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest
from samples import make_member

from serve_app.fleet import Member
from serve_app.fleet.pace import Pace
from serve_app.routing import POLICIES, RegisteredPolicy, RoutingRequest
from serve_app.settings import GatewaySettings

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def some_members(choose: random.Random) -> list[Member]:
    return [
        make_member(
            f"replica-{number}",
            in_flight=choose.randint(0, 3),
            running=choose.randint(0, 3),
            waiting=choose.randint(0, 1),
            kv_cache_usage=choose.choice([0.0, 0.5, 0.9]),
            capacity=choose.choice([1, 2, 64]),
            weight=choose.choice([0.5, 1.0, 3.0]),
            pending_tokens=choose.choice([0.0, 100.0, 5000.0]),
            turn=choose.choice([0.0, 1.0, 1.5]),
            pace=Pace(prefill_s_per_token=choose.choice([1e-4, 1e-3])),
        )
        for number in range(choose.randint(0, 8))
    ]


def some_request(choose: random.Random) -> RoutingRequest:
    tokens = choose.choice([0.0, 10.0, 30_000.0])
    cached = {f"replica-{number}": tokens * choose.random() for number in range(choose.randint(0, 8))}
    return RoutingRequest(tokens, (1, 2, 3), choose.choice([None, "", "s", "Sitzung-ü"]), cached)


def test_the_default_policy_of_the_settings_is_registered() -> None:
    assert GatewaySettings().routing in POLICIES


@EVERY_POLICY
def test_a_policy_orders_all_candidates_and_changes_none(policy: RegisteredPolicy) -> None:
    choose = random.Random(11)
    for _ in range(200):
        members, request = some_members(choose), some_request(choose)
        before = deepcopy(members)
        ordered = policy.order(request, members)
        assert members == before
        assert len(ordered) == len(members)
        assert {id(member) for member in ordered} == {id(member) for member in members}


@EVERY_POLICY
def test_a_policy_depends_on_no_order_of_the_candidates(policy: RegisteredPolicy) -> None:
    choose = random.Random(5)
    for _ in range(200):
        members, request = some_members(choose), some_request(choose)
        ordered = policy.order(request, members)
        choose.shuffle(members)
        assert policy.order(request, members) == ordered


@EVERY_POLICY
def test_a_policy_accepts_no_candidates_and_a_tuple(policy: RegisteredPolicy) -> None:
    (only,) = members = (make_member("a"),)
    assert policy.order(RoutingRequest(10.0), ()) == []
    assert policy.order(RoutingRequest(10.0), members) == [only]
