"""The table keeps what it knows of a member as long as the member keeps reporting."""

from __future__ import annotations

import pytest
from samples import make_report

from serve_app.fleet import EngineState, FleetTable, Member
from serve_app.fleet.pace import RECOVERY_S
from serve_app.fleet.table import UNREACHABLE_S


def table_of(*names: str) -> FleetTable:
    table = FleetTable({"m": None})
    table.update("m", [make_report(name) for name in names], 0.0)
    return table


def names(members: tuple[Member, ...]) -> list[str]:
    return [member.name for member in members]


def test_a_new_table_knows_its_models_and_no_members() -> None:
    table = FleetTable({"m": None, "n": None})
    assert table.models == ("m", "n")
    assert table.members("m") == table.members("n") == ()
    assert table.in_flight() == 0


def test_an_update_returns_the_members_that_are_new() -> None:
    table = FleetTable({"m": None})
    assert names(table.update("m", [make_report("a"), make_report("b")], 0.0)) == ["a", "b"]
    assert names(table.update("m", [make_report("b"), make_report("c")], 1.0)) == ["c"]
    assert table.update("m", [make_report("b"), make_report("c")], 2.0) == ()


def test_a_member_that_no_longer_reports_is_dropped() -> None:
    table = table_of("a", "b")
    table.update("m", [make_report("b")], 1.0)
    assert names(table.members("m")) == ["b"]
    table.update("m", [], 2.0)
    assert table.members("m") == ()


def test_a_silent_member_is_believed_for_a_while_only_when_some_replica_was_silent() -> None:
    table = table_of("good", "bad")
    table.update("m", [make_report("good")], 3.0, keep_since=-2.0)
    assert names(table.members("m")) == ["good", "bad"]
    table.update("m", [make_report("good")], 6.0, keep_since=1.0)
    assert names(table.members("m")) == ["good"]


def test_a_member_that_reports_again_is_kept_with_its_count_and_gets_the_new_report() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    table.send(member, 10, 0.0)
    newer = make_report("a", running=9, state=EngineState.DRAINING)
    table.update("m", [newer], 3.5)
    assert table.members("m") == (member,)
    assert table.members("m")[0] is member
    assert (member.in_flight, member.report, member.reported_at) == (1, newer, 3.5)


def test_a_member_with_another_address_is_another_member() -> None:
    table = table_of("a")
    (old,) = table.members("m")
    table.send(old, 10, 0.0)
    table.mark_unreachable(old, 0.0)
    (new,) = table.update("m", [make_report("a", url="http://127.0.0.1/elsewhere")], 0.1)
    assert new is not old
    assert (new.in_flight, new.can_serve(0.1)) == (0, True)


def test_models_are_kept_apart() -> None:
    table = FleetTable({"m": None, "n": None})
    table.update("m", [make_report("a")], 0.0)
    table.update("n", [make_report("a", model="n")], 0.0)
    table.update("m", [], 1.0)
    assert names(table.candidates("n", 1.0)) == ["a"]


def test_sent_and_ended_requests_are_counted() -> None:
    table = table_of("a", "b")
    first, second = table.members("m")
    dispatches = [table.send(member, 10, 0.0) for member in (first, first, second)]
    assert (first.in_flight, second.in_flight, table.in_flight()) == (2, 1, 3)
    table.end(dispatches[0], 1.0, complete=True)
    table.end(dispatches[2], 1.0, complete=False)
    assert (first.in_flight, second.in_flight, table.in_flight()) == (1, 0, 1)


def test_a_prompt_is_pending_until_its_first_byte() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    one, two = table.send(member, 100, 0.0), table.send(member, 30, 0.0)
    assert (member.unanswered, member.pending_tokens) == (2, 130)
    assert (one.tokens_ahead, two.tokens_ahead) == (100, 130)
    table.first_byte(one, 0.5)
    assert (member.unanswered, member.pending_tokens) == (1, 30)
    table.end(one, 1.0, complete=True)
    assert (member.unanswered, member.pending_tokens) == (1, 30)


def test_a_request_that_ends_without_an_answer_leaves_nothing_behind() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    table.end(table.send(member, 100, 0.0), 9.0, complete=False)
    assert (member.in_flight, member.unanswered, member.pending_tokens) == (0, 0, 0)
    assert (member.pace.first_bytes, member.pace.ends) == (0, 0)


@pytest.mark.parametrize(
    ("running", "waiting", "in_flight", "load"),
    [(0, 0, 0, 0), (2, 3, 0, 5), (2, 3, 4, 5), (0, 0, 4, 4), (1, 0, 4, 4), (10, 5, 1, 15)],
)
def test_the_load_is_the_larger_of_what_is_reported_and_what_was_sent(
    running: int, waiting: int, in_flight: int, load: int
) -> None:
    table = table_of("a")
    (member,) = table.members("m")
    for _ in range(in_flight):
        table.send(member, 10, 0.0)
    table.update("m", [make_report("a", running=running, waiting=waiting)], 1.0)
    assert member.load == load


def test_what_waits_at_the_engine_beyond_this_gateways_own_is_others() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    table.first_byte(table.send(member, 10, 0.0), 0.5)
    mine = table.send(member, 10, 0.6)
    table.update("m", [make_report("a", running=2, waiting=4)], 1.0)
    assert (member.others, member.others_waiting) == (4, 3)
    table.first_byte(mine, 1.1)
    assert member.others_waiting == 3


def test_what_happens_after_a_report_corrects_it() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    early = table.send(member, 10, 0.0)
    table.update("m", [make_report("a", running=5)], 1.0)
    table.send(member, 10, 1.1)
    assert member.load == 6
    table.end(early, 1.2, complete=True)
    assert member.load == 5


def test_a_member_is_given_its_capacity_or_the_limit_of_its_model() -> None:
    table = FleetTable({"m": None, "n": 5})
    (own,) = table.update("m", [make_report(capacity=7)], 0.0)
    (limited,) = table.update("n", [make_report(model="n", capacity=7)], 0.0)
    assert (own.limit, limited.limit) == (7, 5)


def test_the_pace_of_a_prompt_is_learned_from_streams_that_found_a_place() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    table.first_byte(table.send(member, 1000, 0.0), 2.0)
    assert member.pace.prefill_s_per_token == pytest.approx(0.002)
    table.first_byte(table.send(member, 1000, 0.0), 60.0, streamed=False)
    assert member.pace.first_bytes == 1
    table.update("m", [make_report("a", running=64)], 1.0)
    table.first_byte(table.send(member, 1000, 0.0), 60.0)
    assert member.pace.first_bytes == 1


def test_the_time_in_a_queue_is_no_part_of_the_service_time() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    table.first_byte(table.send(member, 1000, 0.0), 1.0)
    table.update("m", [make_report("a", running=64)], 1.0)
    waited = table.send(member, 1000, 10.0)
    table.first_byte(waited, 40.0)
    table.end(waited, 44.0, complete=True)
    assert member.pace.service_s == pytest.approx(5.0)


def test_a_whole_answer_says_how_long_a_request_takes() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    dispatch = table.send(member, 1000, 0.0)
    table.first_byte(dispatch, 6.0, streamed=False)
    table.end(dispatch, 6.1, complete=True)
    assert member.pace.service_s == pytest.approx(6.1)


def test_an_answer_that_was_cut_says_nothing_of_the_pace() -> None:
    table = table_of("a")
    (member,) = table.members("m")
    dispatch = table.send(member, 1000, 0.0)
    table.first_byte(dispatch, 1.0)
    table.end(dispatch, 1.1, complete=False)
    assert member.pace.ends == 0


def test_a_turn_is_as_long_as_the_weight_says() -> None:
    table = FleetTable({"m": None})
    table.update("m", [make_report("a", weight=2.0), make_report("b")], 0.0)
    heavy, light = table.members("m")
    for member in (heavy, light, heavy):
        table.send(member, 0, 0.0)
    assert heavy.turn == light.turn == 1.0


def test_a_member_that_was_away_has_saved_up_no_turns() -> None:
    table = table_of("a", "b")
    away, busy = table.members("m")
    for _ in range(100):
        table.send(busy, 0, 0.0)
    table.send(away, 0, 0.0)
    assert away.turn >= busy.turn


def test_a_new_member_starts_with_the_pace_of_its_siblings() -> None:
    table = table_of("a")
    table.first_byte(table.send(table.members("m")[0], 1000, 0.0), 5.0)
    (new,) = table.update("m", [make_report("a"), make_report("b")], 6.0)
    assert new.pace.prefill_s_per_token == pytest.approx(0.005)


def test_a_slow_member_without_work_is_given_another_chance() -> None:
    table = table_of("fast", "slow")
    fast, slow = table.members("m")
    reports = [make_report("fast"), make_report("slow")]
    for member, elapsed_s in ((fast, 1.0), (slow, 9.0)):
        dispatch = table.send(member, 1000, 0.0)
        table.first_byte(dispatch, elapsed_s)
    table.update("m", reports, 10.0)
    assert slow.pace.prefill_s_per_token == pytest.approx(0.009)
    table.end(dispatch, 10.0, complete=True)
    table.update("m", reports, 10.0 + RECOVERY_S / 2)
    assert slow.pace.prefill_s_per_token == pytest.approx(0.005)
    assert fast.pace.prefill_s_per_token == pytest.approx(0.001)


def test_what_runs_at_a_dropped_member_ends_without_touching_the_others() -> None:
    table = table_of("a", "b")
    gone, left = table.members("m")
    dispatch = table.send(gone, 10, 0.0)
    table.send(left, 10, 0.0)
    table.update("m", [make_report("b")], 1.0)
    assert table.in_flight() == 1
    table.end(dispatch, 1.0, complete=True)
    assert (gone.in_flight, table.in_flight()) == (0, 1)


def test_a_static_member_stays_without_reports() -> None:
    table = FleetTable({"m": None})
    table.update("m", [make_report("vendor", is_static=True), make_report("b")], 0.0)
    table.update("m", [], 100.0)
    assert names(table.members("m")) == ["vendor"]


def test_what_one_member_says_leaves_the_others_as_they_are() -> None:
    table = table_of("a", "b")
    table.learn(make_report("b", running=3), 9.0)
    table.learn(make_report("c"), 9.0)
    assert names(table.members("m")) == ["a", "b", "c"]
    assert [(member.load, member.reported_at) for member in table.members("m")] == [(0, 0), (3, 9), (0, 9)]


def test_candidates_are_the_ready_members() -> None:
    table = FleetTable({"m": None})
    reports = [make_report(state.value, state=state) for state in EngineState]
    table.update("m", reports, 0.0)
    assert names(table.candidates("m", 0.0)) == ["ready"]


def test_an_unreachable_member_is_left_alone_for_the_cool_down() -> None:
    table = table_of("a", "b")
    table.mark_unreachable(table.members("m")[0], 10.0)
    assert names(table.candidates("m", 10.0)) == ["b"]
    assert names(table.candidates("m", 10.0 + UNREACHABLE_S - 0.01)) == ["b"]
    assert names(table.candidates("m", 10.0 + UNREACHABLE_S)) == ["a", "b"]


def test_a_report_does_not_end_the_cool_down() -> None:
    table = table_of("a")
    table.mark_unreachable(table.members("m")[0], 10.0)
    table.update("m", [make_report("a", running=1)], 10.1)
    assert table.candidates("m", 10.1) == ()


def test_it_is_ready_when_every_model_has_a_member_that_can_serve() -> None:
    table = FleetTable({"m": None, "n": None})
    assert not table.is_ready(0.0)
    table.update("m", [make_report("a")], 0.0)
    assert not table.is_ready(0.0)
    table.update("n", [make_report("b", state=EngineState.WARMING)], 0.0)
    assert not table.is_ready(0.0)
    table.update("n", [make_report("b")], 1.0)
    assert table.is_ready(1.0)
    table.mark_unreachable(table.members("n")[0], 1.0)
    assert not table.is_ready(1.5)
    assert table.is_ready(1.0 + UNREACHABLE_S)


def test_a_report_given_twice_is_one_member() -> None:
    table = FleetTable({"m": None})
    assert names(table.update("m", [make_report("a"), make_report("a", running=2)], 0.0)) == ["a"]
    assert table.members("m")[0].report.running == 2


def test_reports_that_cannot_be_read_to_the_end_leave_the_table_as_it_was() -> None:
    table = table_of("a")
    with pytest.raises(ZeroDivisionError):
        table.update("m", (make_report(str(1 // number)) for number in (1, 0)), 1.0)
    assert names(table.members("m")) == ["a"]


def test_a_model_that_may_be_empty_is_ready_without_a_member() -> None:
    table = FleetTable({"m": None, "zero": None}, may_be_empty={"zero"})
    assert not table.is_ready(0.0)
    table.update("m", [make_report("a")], 0.0)
    assert table.is_ready(0.0)


def test_a_model_takes_tools_if_some_member_does_or_none_is_known() -> None:
    table = FleetTable({"m": None})
    assert table.takes_tools("m")
    table.update("m", [make_report("a", takes_tools=False)], 0.0)
    assert not table.takes_tools("m")
    table.update("m", [make_report("a", takes_tools=False), make_report("b")], 1.0)
    assert table.takes_tools("m")
