"""A session stays where it is, whatever happens to others."""

from __future__ import annotations

from collections import Counter

import pytest
from samples import make_member

from serve_app.fleet import Member
from serve_app.routing import RoutingRequest
from serve_app.routing.least_wait import least_wait
from serve_app.routing.session import session

SESSIONS = [f"session-{number}" for number in range(2000)]


def members_of(*names: str) -> list[Member]:
    return [make_member(name) for name in names]


def homes(members: list[Member]) -> dict[str, str]:
    return {key: session(RoutingRequest(10.0, session=key), members)[0].name for key in SESSIONS}


def moved(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {key for key in SESSIONS if before[key] != after[key]}


def test_sessions_are_spread_evenly() -> None:
    counts = Counter(homes(members_of(*"abcd")).values())
    assert all(count == pytest.approx(500, rel=0.15) for count in counts.values())


def test_sessions_are_spread_by_weight() -> None:
    counts = Counter(homes([make_member("a", weight=3.0), make_member("b")]).values())
    assert counts["a"] / counts["b"] == pytest.approx(3.0, rel=0.15)


def test_a_member_that_joins_takes_its_share_and_moves_nothing_else() -> None:
    before, after = homes(members_of(*"abcd")), homes(members_of(*"abcde"))
    went = moved(before, after)
    assert {after[key] for key in went} == {"e"}
    assert len(went) == pytest.approx(len(SESSIONS) / 5, rel=0.15)


def test_a_member_that_leaves_moves_only_its_own_sessions_and_spreads_them() -> None:
    before, after = homes(members_of(*"abcde")), homes(members_of(*"abcd"))
    assert moved(before, after) == {key for key in SESSIONS if before[key] == "e"}
    spread = Counter(after[key] for key in SESSIONS if before[key] == "e")
    assert set(spread) == set("abcd")
    assert max(spread.values()) < 2 * min(spread.values())


def test_more_weight_only_draws_sessions_to_the_member() -> None:
    before = homes(members_of(*"abc"))
    after = homes([make_member("a", weight=2.0), *members_of("b", "c")])
    assert {after[key] for key in moved(before, after)} == {"a"}


def test_load_moves_no_session() -> None:
    busy = [make_member(name, in_flight=load) for name, load in zip("abcd", (0, 60, 5, 30), strict=True)]
    assert homes(busy) == homes(members_of(*"abcd"))


def test_the_order_is_the_same_in_every_process() -> None:
    request = RoutingRequest(10.0, session="s-1")
    assert [member.name for member in session(request, members_of(*"abcdef"))] == list("fbaedc")


def test_a_request_without_a_session_goes_where_it_waits_least() -> None:
    members = [make_member("a", in_flight=9), make_member("b", in_flight=2), make_member("c", in_flight=5)]
    request = RoutingRequest(10.0)
    assert session(request, members) == least_wait(request, members)


def test_an_empty_session_is_a_session() -> None:
    members = members_of(*"abcd")
    busiest = session(RoutingRequest(10.0, session=""), members)[0]
    busiest.in_flight = 50
    assert session(RoutingRequest(10.0, session=""), members)[0] is busiest
