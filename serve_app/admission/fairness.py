"""Fair shares of a model: which tenant goes next when several wait, and which may take a free slot.

**Whose turn it is** follows the Virtual Token Counter of Sheng et al., "Fairness in Serving Large Language
Models" (OSDI 2024): a counter for each tenant grows by what its requests cost in tokens, divided by the
tenant's weight, and the tenant with the least counter goes next; within a tenant priority decides, then age.
One that holds no slot goes first, as long as it has not had more than that by more than the credit (below).
The cost of a prompt is known when it is sent. That of the answer is estimated then, by the tenant's answers
so far, and corrected when it ends. A tenant that comes with nothing waiting is lifted to what those that are
served have reached, so that an idle hour saves up nothing; unlike in the paper, it keeps a small credit
(``CREDIT_REQUESTS``), because a tenant that asks for little should not wait behind one that asks for much.

**Who may take a slot.** A slot is room for one sequence at one engine; a request takes one for each sequence
that it generates. A tenant is *active* while it holds or waits for slots, and for ``ABOUT_S`` after its last
request. A single active tenant may take all slots. Otherwise a tenant is free to take up to its fair share
(all slots divided by the weights of the active tenants). Above it, it must leave slots free for others, so
that these find a free slot instead of waiting for an answer to end: at least a reserve, and as many as each
of them recently held at once plus one (up to its share). Of the tenants that hold none, no more are expected
than recently held some at the same time. Of those that want more than their share, nothing is kept for
one that has had more tokens than this one, by more than the credit. So tokens decide among tenants that all
want more than they get; one that wants no more than its share of the slots does not wait for them, however
few tokens the slots of others make.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from serve_app.admission.costs import Costs, Spent, mean
from serve_app.admission.priority_queue import PriorityQueue, Ticket
from serve_app.admission.turns import Turns

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
class _Peak:
    """The most of something in the last one to two ``ABOUT_S``."""

    now: int = 0
    before: int = 0
    since: float = -math.inf

    @property
    def most(self) -> int:
        return max(self.now, self.before)

    def saw(self, value: int, now: float) -> None:
        if now - self.since >= ABOUT_S:
            self.before = self.now if now - self.since < 2 * ABOUT_S else 0
            self.now, self.since = 0, now
        self.now = max(self.now, value)


@dataclass(slots=True)
class _Tenant(Generic[T]):
    """``counter``: its tokens, by weight. ``held`` slots now, ``peak`` of them, ``turn`` the number of its
    last grant; ``output``: tokens of its usual answer. Times are monotonic seconds."""

    name: str
    weight: float
    counter: float = 0.0
    queue: PriorityQueue[T] = field(default_factory=PriorityQueue)
    held: int = 0
    peak: _Peak = field(default_factory=_Peak)
    turn: int = 0
    seen: float = -math.inf
    output: float | None = None

    @property
    def is_busy(self) -> bool:
        return self.held > 0 or len(self.queue) > 0


class FairQueues(Generic[T]):
    """One queue for each tenant, and the slots and tokens of each. No clock: callers pass ``now``.
    ``weights`` of tenants by name; 1 for all others. It is one class because the order of the queues depends
    on what tenants took."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = weights or {}
        self._tenants: OrderedDict[str, _Tenant[T]] = OrderedDict()  # the longest unseen first
        self._weight = 0.0
        self._waiting = Turns()
        self._costs = Costs()
        self._holding: dict[str, _Tenant[T]] = {}
        self._holding_at_once = _Peak()
        self._held = 0
        self._turns = 0
        self._reached = 0.0  # the paper's least counter of those that are served; never falls

    def __len__(self) -> int:
        """How many requests of all tenants wait."""
        return self._waiting.waiting

    def __iter__(self) -> Iterator[Ticket[T]]:
        """All waiting tickets; a copy."""
        return iter([ticket for name in self._waiting for ticket in self._tenants[name].queue])

    def held(self, name: str) -> int:
        tenant = self._tenants.get(name)
        return 0 if tenant is None else tenant.held

    def counter(self, name: str) -> float:
        """The tenant's tokens, by its weight."""
        tenant = self._tenants.get(name)
        return 0.0 if tenant is None else tenant.counter

    def came(self, name: str, now: float) -> None:
        """A request of the tenant arrived; tenants that are no longer active are forgotten."""
        tenant = self._tenant(name)
        tenant.seen = now
        self._tenants.move_to_end(name)
        if not tenant.queue:
            tenant.counter = max(tenant.counter, self._reached - self._costs.credit)
        while (first := next(iter(self._tenants))) != name and self._tenants[first].seen < now - ABOUT_S:
            if self._tenants[first].is_busy:
                self._tenants[first].seen = now
                self._tenants.move_to_end(first)
            else:
                self._weight -= self._tenants.pop(first).weight

    def _tenant(self, name: str) -> _Tenant[T]:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = self._new(name)
            self._weight += tenant.weight
        return tenant

    def _new(self, name: str) -> _Tenant[T]:
        return _Tenant(name, self._weights.get(name, 1.0))

    # ---- the queues ----

    def enter(self, name: str, priority: int, request: T) -> Ticket[T]:
        tenant = self._tenant(name)
        ticket = tenant.queue.enter(priority, request)
        self._grew(tenant, 1)
        return ticket

    def contains(self, name: str, ticket: Ticket[T]) -> bool:
        tenant = self._tenants.get(name)
        return tenant is not None and ticket in tenant.queue

    def waits(self, name: str) -> bool:
        """Whether a request of the tenant waits."""
        tenant = self._tenants.get(name)
        return tenant is not None and len(tenant.queue) > 0

    def leave(self, name: str, ticket: Ticket[T]) -> None:
        """Remove a ticket that was served, timed out or given up.

        Raises:
            ValueError: it was removed already.
        """
        tenant = self._tenant(name)
        tenant.queue.leave(ticket)
        self._grew(tenant, -1)

    def _grew(self, tenant: _Tenant[T], by: int) -> None:
        length = len(tenant.queue)
        self._waiting.resized(length - by, length)
        if not length or length == by:
            self._find_place(tenant)

    def _find_place(self, tenant: _Tenant[T]) -> None:
        """After a change of what decides its turn."""
        waits = len(tenant.queue) > 0
        place = (tenant.counter, tenant.held, tenant.turn, tenant.name) if waits else None
        self._waiting.move(tenant.name, place)

    def ahead_of(self, name: str, priority: int) -> int:
        """How many requests would be served before a new ticket: those ahead in the tenant's own queue, and
        up to one more than that of each other tenant, because tenants take turns. (Their counters would say
        more, if costs of waiting requests were known.)"""
        own = self._tenants.get(name)
        length = 0 if own is None else len(own.queue)
        ahead = 0 if own is None else own.queue.ahead_of(priority)
        return ahead + self._waiting.up_to(ahead + 1) - min(length, ahead + 1)

    def turns(self) -> Iterator[Iterable[Ticket[T]]]:
        """The queues, in the order in which tenants are served. It ends with the first change."""
        for name in self._waiting.within(self._costs.credit):
            yield self._tenants[name].queue

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
        tenant = self._tenants.get(name) or self._new(name)
        if tenant.held + weight <= self._share(tenant, slots):
            return True
        expected = self._expected(tenant, slots)
        first = next(expected, None)
        if first is None:
            return True
        left = free - weight
        if left < reserve - (self._held - tenant.held):
            return False
        if not tenant.held:  # otherwise one that asks for more than its share in one request never gets it
            return True
        wanted = self._wanted(first, slots)
        for other in expected:
            if wanted > left:
                break
            wanted += self._wanted(other, slots)
        return wanted <= left

    def _share(self, tenant: _Tenant[T], slots: int) -> int:
        return max(1, int(slots * tenant.weight / self._weight + 1e-9))

    def _expected(self, tenant: _Tenant[T], slots: int) -> Iterator[_Tenant[T]]:
        """The others that may want slots soon, and come before this tenant."""
        more = max(1, self._holding_at_once.most + 1 - len(self._holding))
        for other in reversed(self._tenants.values()):  # who was here last may come again first
            if other is not tenant and not other.held and self._comes_before(other, tenant, slots):
                yield other
                more -= 1
                if not more:
                    break
        for other in self._holding.values():
            if other is not tenant and self._comes_before(other, tenant, slots):
                yield other

    def _comes_before(self, other: _Tenant[T], tenant: _Tenant[T], slots: int) -> bool:
        """It has not had more tokens than this tenant, or wants no more than its share of the slots. (A
        request that waits counts as one slot: what more it takes shows once it holds them.)"""
        if other.counter <= tenant.counter + self._costs.credit:
            return True
        return other.held + len(other.queue) <= self._share(other, slots)

    def _wanted(self, other: _Tenant[T], slots: int) -> int:
        """Slots that it may want soon: what it recently held, plus one, minus what it holds now."""
        return max(0, min(self._share(other, slots), other.peak.most + 1) - other.held)

    def took(self, name: str, slots: int, now: float, prompt_tokens: float = 0.0) -> float:
        """The tenant's request goes to a member. Returns the cost that it is charged until it ends."""
        tenant = self._tenant(name)
        least = self._waiting.least
        self._reached = max(self._reached, tenant.counter if least is None else min(tenant.counter, least))
        cost = self._costs.expected(prompt_tokens, slots, tenant.output)
        tenant.counter += cost / tenant.weight
        self._turns += 1
        tenant.turn = self._turns
        self._hold(tenant, slots, now)
        self._find_place(tenant)
        return cost

    def _hold(self, tenant: _Tenant[T], slots: int, now: float) -> None:
        tenant.held += slots
        self._held += slots
        tenant.peak.saw(tenant.held, now)
        if tenant.held:
            self._holding[tenant.name] = tenant
        self._holding_at_once.saw(len(self._holding), now)

    def gave_back(self, name: str, slots: int, charged: float = 0.0, spent: Spent | None = None) -> None:
        """The request ended. What it was ``charged`` is corrected to what it ``spent``, if that is given."""
        tenant = self._tenants[name]
        tenant.held -= slots
        self._held -= slots
        if not tenant.held:
            self._holding.pop(name, None)
        if spent is not None:
            tenant.counter += (spent.cost - charged) / tenant.weight
            if spent.output_tokens is not None:
                each = spent.output_tokens / max(1, slots)
                tenant.output = mean(tenant.output, each)
                self._costs.saw(each)
        self._find_place(tenant)
