"""Fair shares of a model's slots: which tenant may take one, and who is next when several tenants wait.

A slot is room for one sequence at one engine; a request takes one for each sequence that it generates. A
tenant is *active* while it holds or waits for slots, and for ``ABOUT_S`` after its last request. A single
active tenant may take all slots. Otherwise a tenant is free to take up to its fair share (all slots divided
by the active tenants). Above its share it must leave slots free for the others: as many as each of them
recently held at once plus one (up to their share), and at least a reserve, so that they find a free slot
instead of waiting for an answer to end. Free slots go to the tenant with the fewest first (max-min
fairness), among equals to the one that was served longest ago; within a tenant priority decides, then age.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from serve_app.admission.priority_queue import PriorityQueue, Ticket

T = TypeVar("T")

ABOUT_S = 60.0
"""How long a tenant stays active after its last request, in seconds."""

RESERVED_SHARE = 8
"""One slot in this many is reserved for tenants that hold none."""


def reserved(slots: int) -> int:
    """How many of a member's slots are reserved: one in ``RESERVED_SHARE``, at least one, never the only
    one."""
    return max(1, slots // RESERVED_SHARE) if slots > 1 else 0


def most_for_one(slots: int) -> int:
    """How many of a member's slots one request may take while tenants share: half of them, rounded up."""
    return (slots + 1) // 2


@dataclass(slots=True)
class _Tenant(Generic[T]):
    """``held`` slots now, ``peak`` the most of them recently (reached at ``peak_at``), ``turn`` the number
    of its last grant. Times are monotonic seconds."""

    queue: PriorityQueue[T] = field(default_factory=PriorityQueue)
    held: int = 0
    peak: int = 0
    peak_at: float = -math.inf
    turn: int = 0
    seen: float = -math.inf

    @property
    def is_busy(self) -> bool:
        return self.held > 0 or len(self.queue) > 0


class FairQueues(Generic[T]):
    """One queue for each tenant, and the slots that each holds. No clock: callers pass ``now``. It is one
    class because the order of the queues depends on the slots that tenants hold."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, _Tenant[T]] = OrderedDict()  # the longest unseen first
        self._waiting: dict[str, _Tenant[T]] = {}
        self._held = 0
        self._turns = 0

    def __len__(self) -> int:
        """How many requests of all tenants wait."""
        return sum(len(tenant.queue) for tenant in self._waiting.values())

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Ticket[T]]:
        """All waiting tickets; a copy."""
        return iter([ticket for tenant in self._waiting.values() for ticket in tenant.queue])

    def held(self, name: str) -> int:
        tenant = self._tenants.get(name)
        return 0 if tenant is None else tenant.held

    def came(self, name: str, now: float) -> None:
        """A request of the tenant arrived; tenants that are no longer active are forgotten."""
        tenant = self._tenants.setdefault(name, _Tenant())
        tenant.seen = now
        self._tenants.move_to_end(name)
        while (first := next(iter(self._tenants))) != name and self._tenants[first].seen < now - ABOUT_S:
            if self._tenants[first].is_busy:
                self._tenants[first].seen = now
                self._tenants.move_to_end(first)
            else:
                del self._tenants[first]

    # ---- the queues ----

    def enter(self, name: str, priority: int, request: T) -> Ticket[T]:
        tenant = self._waiting[name] = self._tenants.setdefault(name, _Tenant())
        return tenant.queue.enter(priority, request)

    def contains(self, name: str, ticket: Ticket[T]) -> bool:
        return name in self._waiting and ticket in self._waiting[name].queue

    def leave(self, name: str, ticket: Ticket[T]) -> None:
        """Remove a ticket that was served, timed out or given up.

        Raises:
            ValueError: it was removed already.
        """
        if name not in self._waiting:
            raise ValueError(f"ticket {ticket.number} is not in the queue")
        self._waiting[name].queue.leave(ticket)
        if not self._waiting[name].queue:
            del self._waiting[name]

    def ahead_of(self, name: str, priority: int) -> int:
        """How many requests would be served before a new ticket: those ahead in the tenant's own queue, and
        up to one more than that of each other tenant, because tenants take turns."""
        own = self._waiting.get(name)
        ahead = own.queue.ahead_of(priority) if own is not None else 0
        others = (len(tenant.queue) for other, tenant in self._waiting.items() if other != name)
        return ahead + sum(min(waiting, ahead + 1) for waiting in others)

    def turns(self) -> list[Iterable[Ticket[T]]]:
        """The queues, in the order in which tenants are served."""
        if len(self._waiting) == 1:
            return [tenant.queue for tenant in self._waiting.values()]
        in_turn = sorted(self._waiting.values(), key=lambda tenant: (tenant.held, tenant.turn))
        return [tenant.queue for tenant in in_turn]

    # ---- the slots ----

    @property
    def is_shared(self) -> bool:
        """Whether more than one tenant is active."""
        return len(self._tenants) > 1

    def may_take(self, name: str, weight: int, *, slots: int, free: int, reserve: int) -> bool:
        """Whether the tenant may take ``weight`` of the ``free`` slots now. ``slots`` is the total; at
        least ``reserve`` of them are for the other tenants (slots that those hold count towards it)."""
        if not self.is_shared:
            return True
        held, share = self.held(name), max(1, slots // len(self._tenants))
        if held + weight <= share:
            return True
        left = free - weight
        if left < reserve - (self._held - held):
            return False
        # Otherwise a tenant that asks for more than its share in one request would never get it.
        return held == 0 or self._wanted_by_others(name, share, left) <= left

    def _wanted_by_others(self, name: str, share: int, enough: int) -> int:
        """Free slots that the other tenants may want soon: what each recently held, plus one, minus what it
        holds now. Counting stops once the sum is above ``enough``."""
        wanted = 0
        for other, tenant in self._tenants.items():
            if other != name:
                wanted += max(0, min(share, tenant.peak + 1) - tenant.held)
                if wanted > enough:
                    break
        return wanted

    def took(self, name: str, weight: int, now: float) -> None:
        tenant = self._tenants.setdefault(name, _Tenant())
        self._turns += 1
        tenant.turn = self._turns
        tenant.held += weight
        self._held += weight
        if tenant.held >= tenant.peak or tenant.peak_at < now - ABOUT_S:
            tenant.peak, tenant.peak_at = tenant.held, now

    def gave_back(self, name: str, weight: int) -> None:
        self._tenants[name].held -= weight
        self._held -= weight
