"""The queue is sorted by priority, then by age, however tickets enter and leave."""

from __future__ import annotations

import random

import pytest

from serve_app.admission import PriorityQueue, Ticket


def requests_in(queue: PriorityQueue[str]) -> list[str]:
    return [ticket.request for ticket in queue]


def queue_of(*entries: tuple[int, str]) -> PriorityQueue[str]:
    queue = PriorityQueue[str]()
    for priority, request in entries:
        queue.enter(priority, request)
    return queue


def test_a_new_queue_is_empty() -> None:
    queue = PriorityQueue[str]()
    assert (len(queue), requests_in(queue), queue.ahead_of(9)) == (0, [], 0)


def test_the_more_urgent_goes_first_and_among_equals_the_older() -> None:
    queue = queue_of((5, "a"), (9, "b"), (0, "c"), (5, "d"), (0, "e"))
    assert requests_in(queue) == ["c", "e", "a", "d", "b"]


def test_a_priority_below_zero_goes_before_all_that_a_client_can_name() -> None:
    assert requests_in(queue_of((0, "urgent"), (-1, "again"))) == ["again", "urgent"]


@pytest.mark.parametrize("leaver", ["first", "middle", "last"])
def test_a_ticket_leaves_from_any_position(leaver: str) -> None:
    queue = PriorityQueue[str]()
    tickets = {name: queue.enter(5, name) for name in ("first", "middle", "last")}
    queue.leave(tickets[leaver])
    assert requests_in(queue) == [name for name in tickets if name != leaver]
    assert [name for name, ticket in tickets.items() if ticket in queue] == requests_in(queue)


def test_a_ticket_leaves_once() -> None:
    queue = queue_of((5, "stays"))
    ticket = queue.enter(5, "leaves")
    queue.leave(ticket)
    with pytest.raises(ValueError, match="ticket 2 is not in the queue"):
        queue.leave(ticket)
    assert requests_in(queue) == ["stays"]


def test_tickets_may_leave_during_iteration() -> None:
    queue = queue_of(*((5, str(number)) for number in range(5)))
    seen = []
    for ticket in queue:
        seen.append(ticket.request)
        queue.leave(ticket)
    assert seen == ["0", "1", "2", "3", "4"]
    assert len(queue) == 0


def test_who_enters_again_goes_behind_its_equals() -> None:
    queue = PriorityQueue[str]()
    first = queue.enter(5, "a")
    queue.enter(5, "b")
    queue.leave(first)
    queue.enter(5, "a")
    assert requests_in(queue) == ["b", "a"]


def test_equals_and_the_more_urgent_are_ahead_of_a_new_ticket() -> None:
    queue = queue_of((0, "a"), (5, "b"), (5, "c"), (9, "d"))
    assert [queue.ahead_of(priority) for priority in (-1, 0, 1, 4, 5, 6, 9)] == [0, 1, 1, 1, 3, 3, 4]


def test_requests_are_never_compared() -> None:
    queue = PriorityQueue[object]()
    tickets = [queue.enter(5, object()) for _ in range(3)]
    assert list(queue) == tickets
    assert all(ticket in queue for ticket in tickets)


def test_it_stays_what_a_sorted_list_would_be() -> None:
    choose = random.Random(11)
    queue, model = PriorityQueue[int](), list[Ticket[int]]()
    for step in range(3000):
        if model and choose.random() < 0.48:
            leaver = choose.choice(model)
            queue.leave(leaver)
            model.remove(leaver)
            assert leaver not in queue
        else:
            priority = choose.randint(-1, 9)
            expected_position = queue.ahead_of(priority)
            ticket = queue.enter(priority, step)
            model = sorted([*model, ticket], key=lambda each: (each.priority, each.number))
            assert model.index(ticket) == expected_position
        assert list(queue) == model
        assert len(queue) == len(model)
