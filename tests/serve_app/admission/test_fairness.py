"""Tenants share slots: whose turn it is, and what a tenant must leave to others."""

from __future__ import annotations

import pytest

from serve_app.admission import FairQueues, reserved
from serve_app.admission.fairness import ABOUT_S


def first_in_turn(queues: FairQueues[str]) -> list[str]:
    """The first request of each queue, in the order of turns."""
    return [next(ticket.request for ticket in queue) for queue in queues.turns()]


def test_one_place_of_eight_is_kept_and_never_the_only_one() -> None:
    assert [reserved(slots) for slots in (1, 2, 8, 15, 16, 256)] == [0, 1, 1, 1, 2, 32]


def test_a_tenant_alone_may_take_everything() -> None:
    queues = FairQueues[str]()
    queues.came("a", 0.0)
    queues.took("a", 15, 0.0)
    assert queues.may_take("a", 1, slots=16, free=1, reserve=2)


def test_while_others_are_about_a_tenant_beyond_its_share_leaves_a_reserve() -> None:
    queues = FairQueues[str]()
    queues.came("a", 0.0)
    queues.came("b", 0.0)
    queues.took("a", 8, 0.0)
    assert queues.may_take("a", 6, slots=16, free=8, reserve=2)
    assert not queues.may_take("a", 7, slots=16, free=8, reserve=2)
    assert queues.may_take("b", 8, slots=16, free=8, reserve=2)


def test_what_others_hold_already_need_not_be_kept_for_them() -> None:
    queues = FairQueues[str]()
    for name in ("a", "b"):
        queues.came(name, 0.0)
    queues.took("a", 10, 0.0)
    queues.took("b", 1, 0.0)
    assert queues.may_take("a", 4, slots=16, free=5, reserve=2)
    assert not queues.may_take("a", 5, slots=16, free=5, reserve=2)


def test_what_others_have_held_lately_and_one_more_is_left_for_them() -> None:
    queues = FairQueues[str]()
    for name in ("a", "b"):
        queues.came(name, 0.0)
    queues.took("b", 4, 0.0)
    queues.gave_back("b", 3)
    queues.took("a", 8, 0.0)
    assert queues.may_take("a", 3, slots=16, free=7, reserve=2)  # four are left, and b holds one
    assert not queues.may_take("a", 4, slots=16, free=7, reserve=2)
    queues.took("b", 1, 2 * ABOUT_S)
    assert queues.may_take("a", 5, slots=16, free=6, reserve=2)
    assert not queues.may_take("a", 6, slots=16, free=6, reserve=2)


def test_no_more_than_their_share_is_left_for_others() -> None:
    queues = FairQueues[str]()
    for name in ("a", "b"):
        queues.came(name, 0.0)
    queues.took("b", 16, 0.0)
    queues.gave_back("b", 16)
    queues.took("a", 7, 0.0)
    assert queues.may_take("a", 1, slots=16, free=9, reserve=2)
    queues.took("a", 1, 0.0)
    assert not queues.may_take("a", 1, slots=16, free=8, reserve=2)


def test_who_holds_nothing_may_take_more_than_its_share_at_once() -> None:
    queues = FairQueues[str]()
    for name in ("a", "b", "c", "d"):
        queues.came(name, 0.0)
        queues.took(name, 4, 0.0)
        queues.gave_back(name, 4)
    assert queues.may_take("a", 8, slots=16, free=16, reserve=2)
    assert not queues.may_take("a", 15, slots=16, free=16, reserve=2)


def test_a_tenants_first_place_is_its_share_however_many_tenants_there_are() -> None:
    queues = FairQueues[str]()
    for number in range(40):
        queues.came(f"t{number}", 0.0)
        queues.took(f"t{number}", 0, 0.0)
    assert queues.may_take("t0", 1, slots=16, free=1, reserve=2)
    queues.took("t0", 1, 0.0)
    assert not queues.may_take("t0", 1, slots=16, free=1, reserve=2)


def test_who_has_been_away_for_long_is_not_about() -> None:
    queues = FairQueues[str]()
    queues.came("away", 0.0)
    queues.came("a", ABOUT_S)
    assert queues.is_shared
    queues.came("a", ABOUT_S + 1)
    assert not queues.is_shared


def test_who_holds_or_waits_is_about_however_long_it_takes() -> None:
    queues = FairQueues[str]()
    queues.came("holds", 0.0)
    queues.took("holds", 1, 0.0)
    queues.came("waits", 0.0)
    ticket = queues.enter("waits", 5, "x")
    queues.came("a", 10 * ABOUT_S)
    assert queues.is_shared
    queues.gave_back("holds", 1)
    queues.leave("waits", ticket)
    queues.came("a", 12 * ABOUT_S)
    assert not queues.is_shared
    assert queues.held("holds") == 0


def test_the_tenant_with_the_fewest_places_goes_first_and_then_the_one_served_longest_ago() -> None:
    queues = FairQueues[str]()
    for name, slots in (("a", 3), ("b", 1), ("c", 1), ("d", 0)):
        queues.took(name, slots, 0.0)
        queues.enter(name, 5, name)
    queues.took("b", 0, 0.0)
    assert first_in_turn(queues) == ["d", "c", "b", "a"]


def test_priority_counts_within_a_tenant_only() -> None:
    queues = FairQueues[str]()
    queues.took("a", 1, 0.0)
    for name, priority in (("a", 5), ("a", 0), ("b", 9), ("b", 8)):
        queues.enter(name, priority, f"{name}{priority}")
    assert first_in_turn(queues) == ["b8", "a0"]


def test_a_long_line_of_another_tenant_is_not_ahead() -> None:
    queues = FairQueues[str]()
    for number in range(500):
        queues.enter("a", 5, str(number))
    assert queues.ahead_of("a", 5) == 500
    assert queues.ahead_of("b", 5) == 1
    queues.enter("b", 5, "x")
    assert queues.ahead_of("b", 5) == 3
    assert queues.ahead_of("a", 5) == 501
    assert queues.ahead_of("a", 0) == 1


def test_a_ticket_leaves_once() -> None:
    queues = FairQueues[str]()
    ticket = queues.enter("a", 5, "x")
    assert (len(queues), bool(queues), queues.contains("a", ticket)) == (1, True, True)
    queues.leave("a", ticket)
    assert (len(queues), bool(queues), queues.contains("a", ticket)) == (0, False, False)
    with pytest.raises(ValueError, match="not in the queue"):
        queues.leave("a", ticket)
