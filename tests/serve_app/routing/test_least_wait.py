"""The shortest wait wins, and where waits are equal the work is spread."""

from __future__ import annotations

from collections import Counter

import pytest
from samples import make_member, make_report

from serve_app.fleet import FleetTable, Member
from serve_app.fleet.pace import Pace
from serve_app.routing import RoutingRequest
from serve_app.routing.least_wait import least_wait


def order(*members: Member, tokens: float = 100.0) -> list[str]:
    return [member.name for member in least_wait(RoutingRequest(tokens), members)]


def table_of(*names: str) -> FleetTable:
    table = FleetTable({"m": None})
    table.update("m", [make_report(name) for name in names], 0.0)
    return table


def burst(table: FleetTable, requests: int, tokens: float) -> Counter[str]:
    sent: Counter[str] = Counter()
    for _ in range(requests):
        member = least_wait(RoutingRequest(tokens), table.candidates("m", 1.0))[0]
        table.send(member, tokens, 1.0)
        sent[member.name] += 1
    return sent


@pytest.mark.parametrize("tokens", [0.0, 1.0, 1000.0])
def test_a_burst_is_spread_evenly_among_members_of_which_nothing_is_known(tokens: float) -> None:
    assert burst(table_of("a", "b", "c"), 30, tokens) == {"a": 10, "b": 10, "c": 10}


def test_requests_that_never_meet_are_spread_evenly_too() -> None:
    table = table_of("a", "b", "c")
    sent: Counter[str] = Counter()
    for _ in range(30):
        member = least_wait(RoutingRequest(100.0), table.candidates("m", 1.0))[0]
        table.end(table.send(member, 100.0, 1.0), 2.0, complete=False)
        sent[member.name] += 1
    assert sent == {"a": 10, "b": 10, "c": 10}


def test_unequal_prompts_are_spread_by_their_length() -> None:
    table = table_of("a", "b")
    table.send(table.members("m")[0], 10_000, 0.0)
    assert burst(table, 10, 100.0)["a"] == 0


def test_a_faster_member_is_given_more() -> None:
    table = table_of("fast", "slow")
    fast, slow = table.members("m")
    fast.pace, slow.pace = Pace(prefill_s_per_token=1e-4), Pace(prefill_s_per_token=4e-4)
    sent = burst(table, 50, 1000.0)
    assert 3 * sent["slow"] <= sent["fast"] <= 5 * sent["slow"]


def test_running_answers_decide_where_no_prompt_waits() -> None:
    assert order(make_member("a", in_flight=3), make_member("b", in_flight=2)) == ["b", "a"]
    assert order(make_member("a", in_flight=3), make_member("b", in_flight=2), tokens=0.0) == ["b", "a"]


def test_a_small_difference_in_pace_does_not_pile_up_answers_at_one_member() -> None:
    table = table_of("a", "b")
    one, other = table.members("m")
    one.pace, other.pace = Pace(prefill_s_per_token=1.0e-4), Pace(prefill_s_per_token=1.1e-4)
    for _ in range(60):
        member = least_wait(RoutingRequest(1000.0), table.candidates("m", 1.0))[0]
        table.first_byte(table.send(member, 1000.0, 1.0), 1.1, streamed=False)
    assert abs(one.in_flight - other.in_flight) < 10


def test_a_waiting_prompt_weighs_more_than_many_running_answers() -> None:
    running = make_member("a", in_flight=20)
    waiting = make_member("b", in_flight=1, unanswered=1, pending_tokens=1000.0)
    assert order(waiting, running) == ["a", "b"]


def test_a_free_place_weighs_more_than_a_short_prompt_queue() -> None:
    full = make_member("a", in_flight=4, capacity=4)
    busy = make_member("b", in_flight=3, capacity=4, unanswered=3, pending_tokens=5000.0)
    assert order(full, busy) == ["b", "a"]


def test_load_counts_by_weight() -> None:
    light, heavy = make_member("a", in_flight=3), make_member("b", in_flight=4, weight=2.0)
    assert order(light, heavy) == ["b", "a"]


def test_among_equals_the_emptier_kv_cache_comes_first_then_whose_turn_it_is_then_the_name() -> None:
    members = [
        make_member("a", kv_cache_usage=0.1),
        make_member("d"),
        make_member("c"),
        make_member("b", turn=1.0),
    ]
    assert order(*members) == ["c", "d", "b", "a"]
