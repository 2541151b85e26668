"""What a gateway has of one meter, and what it has used of it and must still tell."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from serve_app.quotas.limits import BUDGETS, MINUTES, Bound
from serve_app.quotas.messages import Batch, Held, Spent
from serve_app.quotas.windows import MINUTE_S, SLOT_S

MOST_BATCHES = 200
"""That wait for the owner's disk; then they become one. Its owner may then count one of them twice, once."""

CREDIT_SHARE = 400
"""A gateway takes at most this part of a limit on credit: four that have not heard of a limit that is used up
exceed it by a hundredth."""

AMPLE_SHARE = 10
"""Where the owner said that less than this part of a limit is left, nothing is taken on credit."""

SCARCE_S = 3600.0
"""For so long few parallel requests are taken to be left, where nothing newer is known: they end at any
time."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Purse:
    """One meter, as far as it is this gateway's. ``free`` may be taken, ``busy`` is reserved; ``unsent``:
    what was used and not reported, by slots of time; ``recent``: of the last minute. ``waiting``: what each
    request that waits needs. ``limit``, ``left``, ``resets_s``: as the owner said last, at ``told_at``.
    ``lent``: of ``free`` and ``busy`` what was taken on credit since then, ``lent_told``: of that what the
    call under way tells."""

    scope: str
    bound: Bound
    tenant: str
    free: int = 0
    busy: int = 0
    unsent: dict[int, int] = field(default_factory=dict)
    recent: deque[list[int]] = field(default_factory=deque)
    taken: int = 0
    waiting: list[int] = field(default_factory=list)
    touched: float = 0.0
    tight_until: float = 0.0
    refused_until: float = 0.0
    refused_need: int = 0
    retry_s: float = 0.0
    others: bool = False
    limit: int = -1
    left: int = 0
    resets_s: float = 0.0
    told_at: float = 0.0
    lent: int = 0
    lent_told: int = 0

    def held(self) -> Held:
        """What the owner is told of it."""
        return Held(self.scope, self.bound, self.tenant, self.free, self.busy)

    @property
    def is_used(self) -> bool:
        return bool(self.busy or self.waiting)

    @property
    def is_new(self) -> bool:
        """The owner has said nothing of it yet."""
        return self.limit < 0


Part = tuple[Purse, int]


@dataclass(slots=True, eq=False)
class Taken:
    """What one request has reserved of a purse. ``is_late``: more than a minute ago, of a limit by the
    minute; nothing is held for it any more."""

    purse: Purse
    amount: int
    at: float
    is_over: bool = False
    is_late: bool = False


def credit(purse: Purse, limit: int, now: float) -> int:
    """What may be taken of it before the owner has answered."""
    if purse.waiting or now < purse.tight_until or is_scarce(purse, limit, now):
        return 0
    return limit // CREDIT_SHARE - purse.lent


def is_scarce(purse: Purse, limit: int, now: float) -> bool:
    """The owner has said that little is left, and the window of which it said that is not over."""
    if purse.is_new or purse.left >= limit // AMPLE_SHARE:
        return False
    lasts_s = MINUTE_S if purse.bound in MINUTES else purse.resets_s if purse.bound in BUDGETS else SCARCE_S
    return now < purse.told_at + lasts_s


def spend(purse: Purse, used: int, at: float, now: float) -> None:
    """``at``: when. What was used more than a minute ago counts no longer by the minute."""
    if not used or (purse.bound in MINUTES and at <= now - MINUTE_S):
        return
    slot = int(at / SLOT_S)
    purse.unsent[slot] = purse.unsent.get(slot, 0) + used
    if purse.bound not in MINUTES:
        return
    if purse.recent and purse.recent[-1][0] == slot:
        purse.recent[-1][1] += used
    else:
        purse.recent.append([slot, used])
    while purse.recent and purse.recent[0][0] * SLOT_S < now - MINUTE_S - SLOT_S:
        purse.recent.popleft()


class Flights:
    """What requests that run have reserved of tokens by the minute."""

    def __init__(self) -> None:
        self._taken: deque[Taken] = deque()

    def begin(self, taken: Iterable[Taken]) -> None:
        self._taken += [each for each in taken if each.purse.bound is Bound.TOKENS]

    def left_minute(self, now: float) -> Iterator[Purse]:
        """What began more than a minute ago counts no longer by the minute; the purses in which that changed
        something."""
        while self._taken and self._taken[0].at <= now - MINUTE_S:
            taken = self._taken.popleft()
            if not taken.is_over:
                taken.is_late = True
                taken.purse.busy -= taken.amount
                yield taken.purse


class Outbox:
    """What was used and is not known to be on the owner's disk, in numbered batches."""

    def __init__(self) -> None:
        self._seq = 0
        self._applied = 0
        self._batches: deque[tuple[int, list[tuple[Purse, int, int]]]] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._batches

    def close_batch(self, purses: Iterable[Purse]) -> None:
        """What these have used becomes one batch."""
        spent = []
        for purse in purses:
            spent += [(purse, slot, used) for slot, used in purse.unsent.items()]
            purse.unsent = {}
        if not spent:
            return
        self._seq += 1
        self._batches.append((self._seq, spent))
        if len(self._batches) > MOST_BATCHES:
            self._merge()

    def batches(self, now: float, *, whole: bool) -> list[Batch]:
        """Those that the owner has not taken; ``whole``: or not on its disk."""
        return [
            Batch(seq, [spent_at(purse, slot, used, now) for purse, slot, used in spent])
            for seq, spent in self._batches
            if whole or seq > self._applied
        ]

    def took(self, applied: int, durable: int) -> None:
        self._applied = applied
        while self._batches and self._batches[0][0] <= durable:
            self._batches.popleft()

    def _merge(self) -> None:
        """Those that the owner has taken and not written."""
        taken = [batch for batch in self._batches if batch[0] <= self._applied]
        sums: dict[Purse, dict[int, int]] = {}
        for _, spent in taken:
            for purse, slot, used in spent:
                slots = sums.setdefault(purse, {})
                when = slot if purse.bound in MINUTES else 0
                slots[when] = slots.get(when, 0) + used
        if len(taken) > 1:
            merged = [(purse, slot, used) for purse, slots in sums.items() for slot, used in slots.items()]
            rest = [batch for batch in self._batches if batch[0] > self._applied]
            self._batches = deque([(taken[-1][0], merged), *rest])


def spent_at(purse: Purse, slot: int, used: int, now: float) -> Spent:
    """Its age by the end of its slot: it is never taken for older than it is."""
    age_s = max(0.0, now - (slot + 1) * SLOT_S)
    return Spent(purse.scope, purse.bound, purse.tenant, used, age_s)


def of_last_minute(purses: Iterable[Purse], now: float) -> list[Spent]:
    return [
        spent_at(each, slot, used, now)
        for each in purses
        for slot, used in each.recent
        if slot * SLOT_S > now - MINUTE_S
    ]
