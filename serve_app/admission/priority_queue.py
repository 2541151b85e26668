"""A queue of requests that wait for room: by priority, then by age."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, order=True, slots=True)
class Ticket(Generic[T]):
    """A position in the queue. ``number`` grows with every ticket, so that age decides among equals."""

    priority: int
    number: int
    request: T = field(compare=False)


class PriorityQueue(Generic[T]):
    """Always sorted; a queue holds a few thousand tickets at most."""

    def __init__(self) -> None:
        self._tickets: list[Ticket[T]] = []
        self._issued = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket[T]]:
        """In serving order; a copy, so that tickets may leave during the iteration."""
        return iter(tuple(self._tickets))

    def __contains__(self, ticket: Ticket[T]) -> bool:
        position = self._position_of(ticket)
        return self._tickets[position : position + 1] == [ticket]

    def enter(self, priority: int, request: T) -> Ticket[T]:
        self._issued += 1
        ticket = Ticket(priority, self._issued, request)
        insort(self._tickets, ticket)
        return ticket

    def leave(self, ticket: Ticket[T]) -> None:
        """Remove a ticket that was served, timed out or given up.

        Raises:
            ValueError: it was removed already.
        """
        if ticket not in self:
            raise ValueError(f"ticket {ticket.number} is not in the queue")
        del self._tickets[self._position_of(ticket)]

    def ahead_of(self, priority: int) -> int:
        """How many would be served before a new ticket of ``priority``."""
        return bisect_right(self._tickets, priority, key=lambda ticket: ticket.priority)

    def _position_of(self, ticket: Ticket[T]) -> int:
        return bisect_left(self._tickets, ticket)
