"""What an engine reports, and what a gateway makes of it."""

from __future__ import annotations

import pytest
from samples import make_member, make_report

from serve_app.fleet import EngineState, FleetTable
from serve_app.fleet.pace import Pace

PACE = Pace(prefill_s_per_token=0.001, service_s=8.0, prompt_tokens=500)


def test_the_secret_is_in_no_repr() -> None:
    report, member = make_report(), make_member()
    table = FleetTable({"m": None})
    table.update("m", [report], 0.0)
    said = f"{report!r} {report} {member!r} {table.members('m')!r} {[report]!r}"
    assert "s3cr3t" not in said
    assert "http://127.0.0.1/a" in said


@pytest.mark.parametrize(
    ("state", "serves"),
    [(EngineState.WARMING, False), (EngineState.READY, True), (EngineState.DRAINING, False)],
)
def test_only_a_ready_engine_serves(state: EngineState, serves: bool) -> None:
    assert make_member(state=state).can_serve(0.0) is serves


def test_a_member_is_named_by_its_replica() -> None:
    assert make_member("replica-7").name == "replica-7"


def test_the_load_is_what_this_gateway_sent_and_what_others_did() -> None:
    assert make_member(in_flight=3, others=4).load == 7


@pytest.mark.parametrize(
    ("load", "limit", "has_room"), [(0, 1, True), (1, 1, False), (7, 8, True), (9, 8, False)]
)
def test_there_is_room_below_the_limit(load: int, limit: int, has_room: bool) -> None:
    assert make_member(in_flight=load, limit=limit).has_room is has_room


def test_an_idle_member_makes_wait_only_for_the_prompt() -> None:
    assert make_member(pace=PACE).expected_wait_s(2000) == pytest.approx(2.0)
    assert make_member(pace=PACE).expected_wait_s(0) == 0


def test_prompts_that_are_not_answered_yet_come_first() -> None:
    member = make_member(pace=PACE, in_flight=1, unanswered=1, pending_tokens=3000, capacity=10**6)
    assert member.expected_wait_s(1000) == pytest.approx(4.0, rel=1e-5)


def test_others_that_wait_at_the_engine_are_taken_for_typical_ones() -> None:
    member = make_member(pace=PACE, others=7, others_waiting=2, capacity=10**6)
    assert member.expected_wait_s(0) == pytest.approx(2 * 500 * 0.001, rel=1e-4)


def test_running_answers_slow_a_prefill_down_to_half_at_a_full_member() -> None:
    busy = make_member(pace=PACE, in_flight=32, capacity=64)
    assert busy.expected_wait_s(1000) == pytest.approx(1.5)
    heavier = make_member(pace=PACE, in_flight=32, capacity=64, weight=2.0)
    assert heavier.expected_wait_s(1000) == pytest.approx(1.25)


def test_beyond_its_capacity_a_member_has_to_end_requests_first() -> None:
    full = make_member(pace=PACE, in_flight=4, capacity=4)
    assert full.expected_wait_s(0) == pytest.approx(1 * 8.0 / 4)
    fuller = make_member(pace=PACE, in_flight=7, capacity=4)
    assert fuller.expected_wait_s(0) == pytest.approx(4 * 8.0 / 4)


def test_every_further_request_makes_the_wait_longer() -> None:
    waits = [make_member(pace=PACE, in_flight=load, capacity=8).expected_wait_s(100) for load in range(20)]
    assert waits == sorted(set(waits))


def test_a_capacity_of_nothing_is_no_reason_to_fail() -> None:
    assert make_member(capacity=0, in_flight=2).expected_wait_s(10) > 0
