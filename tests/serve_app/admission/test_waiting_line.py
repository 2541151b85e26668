"""The line is sorted by priority, then by age, whatever enters and leaves."""

from __future__ import annotations

import random

import pytest

from serve_app.admission import Ticket, WaitingLine


def requests_in(line: WaitingLine[str]) -> list[str]:
    return [ticket.request for ticket in line]


def line_of(*entries: tuple[int, str]) -> WaitingLine[str]:
    line = WaitingLine[str]()
    for priority, request in entries:
        line.enter(priority, request)
    return line


def test_a_new_line_is_empty() -> None:
    line = WaitingLine[str]()
    assert (len(line), requests_in(line), line.ahead_of(9)) == (0, [], 0)


def test_the_more_urgent_goes_first_and_among_equals_the_older() -> None:
    line = line_of((5, "a"), (9, "b"), (0, "c"), (5, "d"), (0, "e"))
    assert requests_in(line) == ["c", "e", "a", "d", "b"]


def test_a_priority_below_zero_goes_before_all_that_a_client_can_name() -> None:
    assert requests_in(line_of((0, "urgent"), (-1, "again"))) == ["again", "urgent"]


@pytest.mark.parametrize("leaver", ["first", "middle", "last"])
def test_a_ticket_leaves_from_any_place(leaver: str) -> None:
    line = WaitingLine[str]()
    tickets = {name: line.enter(5, name) for name in ("first", "middle", "last")}
    line.leave(tickets[leaver])
    assert requests_in(line) == [name for name in tickets if name != leaver]
    assert [name for name, ticket in tickets.items() if ticket in line] == requests_in(line)


def test_a_ticket_leaves_once() -> None:
    line = line_of((5, "stays"))
    ticket = line.enter(5, "leaves")
    line.leave(ticket)
    with pytest.raises(ValueError, match="ticket 2 is not in line"):
        line.leave(ticket)
    assert requests_in(line) == ["stays"]


def test_tickets_may_leave_while_the_line_is_gone_through() -> None:
    line = line_of(*((5, str(number)) for number in range(5)))
    seen = []
    for ticket in line:
        seen.append(ticket.request)
        line.leave(ticket)
    assert seen == ["0", "1", "2", "3", "4"]
    assert len(line) == 0


def test_who_enters_again_goes_behind_its_equals() -> None:
    line = WaitingLine[str]()
    first = line.enter(5, "a")
    line.enter(5, "b")
    line.leave(first)
    line.enter(5, "a")
    assert requests_in(line) == ["b", "a"]


def test_equals_and_the_more_urgent_are_ahead_of_a_new_ticket() -> None:
    line = line_of((0, "a"), (5, "b"), (5, "c"), (9, "d"))
    assert [line.ahead_of(priority) for priority in (-1, 0, 1, 4, 5, 6, 9)] == [0, 1, 1, 1, 3, 3, 4]


def test_requests_are_never_compared() -> None:
    line = WaitingLine[object]()
    tickets = [line.enter(5, object()) for _ in range(3)]
    assert list(line) == tickets
    assert all(ticket in line for ticket in tickets)


def test_it_stays_what_a_sorted_list_would_be() -> None:
    choose = random.Random(11)
    line, model = WaitingLine[int](), list[Ticket[int]]()
    for step in range(3000):
        if model and choose.random() < 0.48:
            leaver = choose.choice(model)
            line.leave(leaver)
            model.remove(leaver)
            assert leaver not in line
        else:
            priority = choose.randint(-1, 9)
            expected_place = line.ahead_of(priority)
            ticket = line.enter(priority, step)
            model = sorted([*model, ticket], key=lambda each: (each.priority, each.number))
            assert model.index(ticket) == expected_place
        assert list(line) == model
        assert len(line) == len(model)
