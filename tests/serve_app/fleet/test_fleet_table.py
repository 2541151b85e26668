"""The table keeps what it knows of a member as long as the member keeps reporting."""

from __future__ import annotations

import pytest
from samples import make_report

from serve_app.fleet import EngineState, FleetTable, Member
from serve_app.fleet.table import UNREACHABLE_S


def table_of(*names: str) -> FleetTable:
    table = FleetTable(["m"])
    table.update("m", [make_report(name) for name in names], 0.0)
    return table


def names(members: tuple[Member, ...]) -> list[str]:
    return [member.name for member in members]


def test_a_new_table_knows_its_models_and_no_members() -> None:
    table = FleetTable(["m", "n"])
    assert table.models == ("m", "n")
    assert table.members("m") == table.members("n") == ()
    assert table.in_flight() == 0


def test_an_update_returns_the_members_that_are_new() -> None:
    table = FleetTable(["m"])
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
    table.acquire(member)
    newer = make_report("a", running=9, state=EngineState.DRAINING)
    table.update("m", [newer], 3.5)
    assert table.members("m") == (member,)
    assert table.members("m")[0] is member
    assert (member.in_flight, member.report, member.reported_at) == (1, newer, 3.5)


def test_a_member_with_another_address_is_another_member() -> None:
    table = table_of("a")
    (old,) = table.members("m")
    table.acquire(old)
    table.mark_unreachable(old, 0.0)
    (new,) = table.update("m", [make_report("a", url="http://127.0.0.1/elsewhere")], 0.1)
    assert new is not old
    assert (new.in_flight, new.can_serve(0.1)) == (0, True)


def test_models_are_kept_apart() -> None:
    table = FleetTable(["m", "n"])
    table.update("m", [make_report("a")], 0.0)
    table.update("n", [make_report("a", model="n")], 0.0)
    table.update("m", [], 1.0)
    assert names(table.candidates("n", 1.0)) == ["a"]


def test_acquire_and_release_count_what_is_in_flight() -> None:
    table = table_of("a", "b")
    first, second = table.members("m")
    for member in (first, first, second):
        table.acquire(member)
    assert (first.in_flight, second.in_flight, table.in_flight()) == (2, 1, 3)
    table.release(first)
    table.release(second)
    assert (first.in_flight, second.in_flight, table.in_flight()) == (1, 0, 1)


def test_what_runs_at_a_dropped_member_ends_without_touching_the_others() -> None:
    table = table_of("a", "b")
    gone, left = table.members("m")
    table.acquire(gone)
    table.acquire(left)
    table.update("m", [make_report("b")], 1.0)
    assert table.in_flight() == 1
    table.release(gone)
    assert (gone.in_flight, table.in_flight()) == (0, 1)


def test_candidates_are_the_ready_members() -> None:
    table = FleetTable(["m"])
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
    table = FleetTable(["m", "n"])
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
    table = FleetTable(["m"])
    assert names(table.update("m", [make_report("a"), make_report("a", running=2)], 0.0)) == ["a"]
    assert table.members("m")[0].report.running == 2


def test_reports_that_cannot_be_read_to_the_end_leave_the_table_as_it_was() -> None:
    table = table_of("a")
    with pytest.raises(ZeroDivisionError):
        table.update("m", (make_report(str(1 // number)) for number in (1, 0)), 1.0)
    assert names(table.members("m")) == ["a"]
