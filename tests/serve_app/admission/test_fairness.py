"""Tenants share places: whose turn it is, and what a tenant must leave to others."""

from __future__ import annotations

import pytest

from serve_app.admission import FairLines, reserved
from serve_app.admission.fairness import ABOUT_S


def first_in_turn(lines: FairLines[str]) -> list[str]:
    """The first request of each line, in the order of turns."""
    return [next(ticket.request for ticket in line) for line in lines.turns()]


def test_one_place_of_eight_is_kept_and_never_the_only_one() -> None:
    assert [reserved(places) for places in (1, 2, 8, 15, 16, 256)] == [0, 1, 1, 1, 2, 32]


def test_a_tenant_alone_may_take_everything() -> None:
    lines = FairLines[str]()
    lines.came("a", 0.0)
    lines.took("a", 15, 0.0)
    assert lines.may_take("a", 1, places=16, free=1, reserve=2)


def test_while_others_are_about_a_tenant_beyond_its_share_leaves_a_reserve() -> None:
    lines = FairLines[str]()
    lines.came("a", 0.0)
    lines.came("b", 0.0)
    lines.took("a", 8, 0.0)
    assert lines.may_take("a", 6, places=16, free=8, reserve=2)
    assert not lines.may_take("a", 7, places=16, free=8, reserve=2)
    assert lines.may_take("b", 8, places=16, free=8, reserve=2)


def test_what_others_hold_already_need_not_be_kept_for_them() -> None:
    lines = FairLines[str]()
    for name in ("a", "b"):
        lines.came(name, 0.0)
    lines.took("a", 10, 0.0)
    lines.took("b", 1, 0.0)
    assert lines.may_take("a", 4, places=16, free=5, reserve=2)
    assert not lines.may_take("a", 5, places=16, free=5, reserve=2)


def test_what_others_have_held_lately_and_one_more_is_left_for_them() -> None:
    lines = FairLines[str]()
    for name in ("a", "b"):
        lines.came(name, 0.0)
    lines.took("b", 4, 0.0)
    lines.gave_back("b", 3)
    lines.took("a", 8, 0.0)
    assert lines.may_take("a", 3, places=16, free=7, reserve=2)  # four are left, and b holds one
    assert not lines.may_take("a", 4, places=16, free=7, reserve=2)
    lines.took("b", 1, 2 * ABOUT_S)
    assert lines.may_take("a", 5, places=16, free=6, reserve=2)
    assert not lines.may_take("a", 6, places=16, free=6, reserve=2)


def test_no_more_than_their_share_is_left_for_others() -> None:
    lines = FairLines[str]()
    for name in ("a", "b"):
        lines.came(name, 0.0)
    lines.took("b", 16, 0.0)
    lines.gave_back("b", 16)
    lines.took("a", 7, 0.0)
    assert lines.may_take("a", 1, places=16, free=9, reserve=2)
    lines.took("a", 1, 0.0)
    assert not lines.may_take("a", 1, places=16, free=8, reserve=2)


def test_who_holds_nothing_may_take_more_than_its_share_at_once() -> None:
    lines = FairLines[str]()
    for name in ("a", "b", "c", "d"):
        lines.came(name, 0.0)
        lines.took(name, 4, 0.0)
        lines.gave_back(name, 4)
    assert lines.may_take("a", 8, places=16, free=16, reserve=2)
    assert not lines.may_take("a", 15, places=16, free=16, reserve=2)


def test_a_tenants_first_place_is_its_share_however_many_tenants_there_are() -> None:
    lines = FairLines[str]()
    for number in range(40):
        lines.came(f"t{number}", 0.0)
        lines.took(f"t{number}", 0, 0.0)
    assert lines.may_take("t0", 1, places=16, free=1, reserve=2)
    lines.took("t0", 1, 0.0)
    assert not lines.may_take("t0", 1, places=16, free=1, reserve=2)


def test_who_has_been_away_for_long_is_not_about() -> None:
    lines = FairLines[str]()
    lines.came("away", 0.0)
    lines.came("a", ABOUT_S)
    assert lines.is_shared
    lines.came("a", ABOUT_S + 1)
    assert not lines.is_shared


def test_who_holds_or_waits_is_about_however_long_it_takes() -> None:
    lines = FairLines[str]()
    lines.came("holds", 0.0)
    lines.took("holds", 1, 0.0)
    lines.came("waits", 0.0)
    ticket = lines.enter("waits", 5, "x")
    lines.came("a", 10 * ABOUT_S)
    assert lines.is_shared
    lines.gave_back("holds", 1)
    lines.leave("waits", ticket)
    lines.came("a", 12 * ABOUT_S)
    assert not lines.is_shared
    assert lines.held("holds") == 0


def test_the_tenant_with_the_fewest_places_goes_first_and_then_the_one_served_longest_ago() -> None:
    lines = FairLines[str]()
    for name, places in (("a", 3), ("b", 1), ("c", 1), ("d", 0)):
        lines.took(name, places, 0.0)
        lines.enter(name, 5, name)
    lines.took("b", 0, 0.0)
    assert first_in_turn(lines) == ["d", "c", "b", "a"]


def test_priority_counts_within_a_tenant_only() -> None:
    lines = FairLines[str]()
    lines.took("a", 1, 0.0)
    for name, priority in (("a", 5), ("a", 0), ("b", 9), ("b", 8)):
        lines.enter(name, priority, f"{name}{priority}")
    assert first_in_turn(lines) == ["b8", "a0"]


def test_a_long_line_of_another_tenant_is_not_ahead() -> None:
    lines = FairLines[str]()
    for number in range(500):
        lines.enter("a", 5, str(number))
    assert lines.ahead_of("a", 5) == 500
    assert lines.ahead_of("b", 5) == 1
    lines.enter("b", 5, "x")
    assert lines.ahead_of("b", 5) == 3
    assert lines.ahead_of("a", 5) == 501
    assert lines.ahead_of("a", 0) == 1


def test_a_ticket_leaves_once() -> None:
    lines = FairLines[str]()
    ticket = lines.enter("a", 5, "x")
    assert (len(lines), bool(lines), lines.contains("a", ticket)) == (1, True, True)
    lines.leave("a", ticket)
    assert (len(lines), bool(lines), lines.contains("a", ticket)) == (0, False, False)
    with pytest.raises(ValueError, match="not in line"):
        lines.leave("a", ticket)
