"""A session keeps to the replica that has its turns cached, while that costs no queue."""

from __future__ import annotations

from collections import Counter

import pytest
from samples import chat_request, make_member

from serve_app.fleet import Member
from serve_app.routing import POLICIES, Router, RoutingRequest
from serve_app.routing.affinity import affinity
from serve_app.routing.prefix import FREE_LOAD
from serve_app.routing.session import home_first

PROMPT = 4096.0
SESSIONS = [f"a\0session-{number}" for number in range(400)]


def idle(*names: str) -> list[Member]:
    return [make_member(name) for name in names]


def first(session: str, members: list[Member], **cached: float) -> str:
    return affinity(RoutingRequest(PROMPT, session=session, cached_tokens=cached), members)[0].name


def home(session: str, members: list[Member]) -> str:
    return home_first(session, members)[0].name


def test_every_turn_goes_home_and_homes_are_spread() -> None:
    members = idle(*"abcd")
    homes = {session: first(session, members) for session in SESSIONS}
    assert homes == {session: home(session, members) for session in SESSIONS}
    assert min(Counter(homes.values()).values()) > len(SESSIONS) / 8


def test_a_member_that_joins_or_leaves_moves_only_its_own_sessions() -> None:
    few, many = idle(*"abc"), idle(*"abcd")
    before, after = ({s: first(s, members) for s in SESSIONS} for members in (few, many))
    assert {after[s] for s in SESSIONS if before[s] != after[s]} == {"d"}


def test_a_gateway_that_knows_nothing_of_the_session_sends_it_home_too() -> None:
    """Its earlier turns came through another gateway; all members hold the common system prompt."""
    members = idle("a", "b")
    for session in SESSIONS[:20]:
        assert first(session, members, a=1024.0, b=1024.0) == home(session, members)
        assert first(session, members, **{home(session, members): 0.0}) == home(session, members)


def test_a_queue_at_home_that_is_longer_than_the_prompt_sends_a_turn_elsewhere() -> None:
    for queue, stays in ((1000.0, True), (9000.0, False)):
        members = idle("a", "b")
        busy = next(member for member in members if member.name == home("s", members))
        busy.in_flight, busy.unanswered, busy.pending_tokens = 1, 1, queue
        assert (first("s", members) == busy.name) is stays


def test_a_turn_that_went_elsewhere_is_found_by_its_prefix_while_home_is_busy() -> None:
    members = idle("a", "b")
    busy = next(member for member in members if member.name == home("s", members))
    other = next(member for member in members if member is not busy)
    busy.in_flight, busy.unanswered, busy.pending_tokens = 1, 1, 500.0
    assert first("s", members, **{other.name: PROMPT - 128}) == other.name


def test_a_home_far_beyond_the_mean_load_comes_last() -> None:
    members = [make_member(name, capacity=1000) for name in "abc"]
    busy = next(member for member in members if member.name == home("s", members))
    busy.in_flight = int(FREE_LOAD) + 1
    ranked = affinity(RoutingRequest(PROMPT, session="s"), members)
    assert ranked[-1] is busy
    assert len(ranked) == 3


@pytest.mark.parametrize("policy", ["least_wait", "prefix"])
def test_these_policies_keep_sessions_unless_settings_say_otherwise(policy: str) -> None:
    members = idle(*"abcd")
    keeps, free = Router(POLICIES[policy]), Router(POLICIES[policy], keeps_sessions=False)
    request = chat_request("word " * 800)
    for session in SESSIONS[:8]:
        described = keeps.describe(request, session)
        assert described.blocks
        assert keeps.order(described, members)[0].name == home(session, members)
    named, unnamed = (free.describe(request, session) for session in (SESSIONS[0], None))
    assert free.order(named, members) == free.order(unnamed, members)


@pytest.mark.parametrize("policy", ["session", "round_robin"])
def test_these_policies_stay_what_they_are(policy: str) -> None:
    members = idle(*"abcd")
    router = Router(POLICIES[policy])
    request = router.describe(chat_request("hi"), "s")
    assert not request.blocks
    assert router.order(request, members) == POLICIES[policy].order(request, members)


def test_without_a_session_nothing_is_hashed() -> None:
    assert not Router(POLICIES["least_wait"]).describe(chat_request("word " * 800), None).blocks
