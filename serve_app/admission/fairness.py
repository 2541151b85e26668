"""Fair shares of a model's places: who may take one, and whose turn it is when several tenants wait.

A place is one sequence at one engine; a request takes as many as it generates. While one tenant alone is
about, it may take all. Else a tenant takes what it likes up to its fair share (all places over the tenants
about); beyond that it leaves free what the others have lately held at once and one place more (up to their
share), at the least a reserve, so that they find a place at once instead of waiting for an end. When places
are free, the tenant with the fewest goes first (max-min fairness), among equals the one that was served
longest ago; within a tenant priority decides, then age.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from serve_app.admission.waiting import Ticket, WaitingLine

T = TypeVar("T")

ABOUT_S = 60.0
"""A tenant is about while it holds or waits for places, and so long after its last request."""

RESERVED_SHARE = 8
"""One place of so many is kept for tenants that hold none."""


def reserved(places: int) -> int:
    """Of a member's places: the share, at least one, never the only one."""
    return max(1, places // RESERVED_SHARE) if places > 1 else 0


def most_for_one(places: int) -> int:
    """Of a member's places, those that one request may take where tenants share: half of them, rounded up."""
    return (places + 1) // 2


@dataclass(slots=True)
class _Tenant(Generic[T]):
    """``held`` places, ``peak`` the most of them of late (fewer since ``peak_at``), ``turn`` of the last one
    given. Times are monotonic seconds."""

    line: WaitingLine[T] = field(default_factory=WaitingLine)
    held: int = 0
    peak: int = 0
    peak_at: float = -math.inf
    turn: int = 0
    seen: float = -math.inf

    @property
    def is_busy(self) -> bool:
        return self.held > 0 or len(self.line) > 0


class FairLines(Generic[T]):
    """One line for each tenant, and the places that each holds. No clock: callers pass ``now``."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, _Tenant[T]] = OrderedDict()  # the longest unseen first
        self._waiting: dict[str, _Tenant[T]] = {}
        self._held = 0
        self._turns = 0

    def __len__(self) -> int:
        """How many wait, of all tenants."""
        return sum(len(tenant.line) for tenant in self._waiting.values())

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Ticket[T]]:
        """All that wait; a copy."""
        return iter([ticket for tenant in self._waiting.values() for ticket in tenant.line])

    def held(self, name: str) -> int:
        tenant = self._tenants.get(name)
        return 0 if tenant is None else tenant.held

    def came(self, name: str, now: float) -> None:
        """A request of the tenant; others that have been away for long are forgotten."""
        tenant = self._tenants.setdefault(name, _Tenant())
        tenant.seen = now
        self._tenants.move_to_end(name)
        while (first := next(iter(self._tenants))) != name and self._tenants[first].seen < now - ABOUT_S:
            if self._tenants[first].is_busy:
                self._tenants[first].seen = now
                self._tenants.move_to_end(first)
            else:
                del self._tenants[first]

    # ---- the line ----

    def enter(self, name: str, priority: int, request: T) -> Ticket[T]:
        tenant = self._waiting[name] = self._tenants.setdefault(name, _Tenant())
        return tenant.line.enter(priority, request)

    def contains(self, name: str, ticket: Ticket[T]) -> bool:
        return name in self._waiting and ticket in self._waiting[name].line

    def leave(self, name: str, ticket: Ticket[T]) -> None:
        """Served, timed out or given up.

        Raises:
            ValueError: it has left already.
        """
        if name not in self._waiting:
            raise ValueError(f"ticket {ticket.number} is not in line")
        self._waiting[name].line.leave(ticket)
        if not self._waiting[name].line:
            del self._waiting[name]

    def ahead_of(self, name: str, priority: int) -> int:
        """How many would be served before a new ticket: the tenant's own, and as many of each other one while
        those are served in turn."""
        own = self._waiting.get(name)
        ahead = own.line.ahead_of(priority) if own is not None else 0
        others = (len(tenant.line) for other, tenant in self._waiting.items() if other != name)
        return ahead + sum(min(waiting, ahead + 1) for waiting in others)

    def turns(self) -> list[Iterable[Ticket[T]]]:
        """The lines, those of the tenants whose turn it is first."""
        if len(self._waiting) == 1:
            return [tenant.line for tenant in self._waiting.values()]
        in_turn = sorted(self._waiting.values(), key=lambda tenant: (tenant.held, tenant.turn))
        return [tenant.line for tenant in in_turn]

    # ---- the places ----

    @property
    def is_shared(self) -> bool:
        """More than one tenant is about."""
        return len(self._tenants) > 1

    def may_take(self, name: str, weight: int, *, places: int, free: int, reserve: int) -> bool:
        """Whether the tenant may take ``weight`` of ``free`` places now; ``places`` are all there are,
        ``reserve`` of them at least are kept for others (what those hold already counts)."""
        if not self.is_shared:
            return True
        held, share = self.held(name), max(1, places // len(self._tenants))
        if held + weight <= share:
            return True
        left = free - weight
        if left < reserve - (self._held - held):
            return False
        # One that holds nothing and asks for more than its share at once would else never get it.
        return held == 0 or self._wanted_by_others(name, share, left) <= left

    def _wanted_by_others(self, name: str, share: int, enough: int) -> int:
        """Places that others have lately held and do not hold now, and one more each; not counted further
        than beyond ``enough``."""
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
