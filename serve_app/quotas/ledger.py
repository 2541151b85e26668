"""The owner's ledger: what each limit still allows, and which gateway has which part of it.

For every meter, at every moment: *used* in its window + *granted* to gateways and not known to be used ≤
limit. A gateway reports what it holds as it is, not what changed, so a lost message mends itself with the
next one; only what was used is reported once (``Batch``). Slices shrink with what is left, and near the limit
only what waiting requests need is granted; then others are asked to give back what is free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from serve_app.quotas.limits import BUDGETS, MINUTES, Bound, LimitTable
from serve_app.quotas.messages import SOON_S, Ask, Grant, LeaseCall, LeaseReply, Spent
from serve_app.quotas.windows import Calendar, SlidingMinute

GONE_S = 3.0
"""A gateway that is silent for so long is taken for dead: what it holds returns. One that was only slow may
by then have used it: the limit is exceeded by no more than that."""

SETTLE_S = 1.0
"""A new owner waits for so long until the gateways of the one before have reported what they hold. Requests
that find too little wait meanwhile, and are not refused."""

SHORT_S = 1.0
"""For so long after a request found too little, only what requests need is granted."""

SLICE_SHARE = 50
"""A slice beyond the need is at most this part of the limit: what a gateway that dies can lose or
overspend."""

SPARE_SHARE = 4
"""And, shared between the gateways that use the meter, at most this part of what is left."""

KEPT_SPANS = 3
NO_LIMIT = -1

Key = tuple[str, Bound]


@dataclass(slots=True)
class Lease:
    free: int = 0
    busy: int = 0


@dataclass(slots=True)
class Meter:
    """``totals``: of budgets, by the label of their day or month; ``minute``: of what counts by the
    minute."""

    minute: SlidingMinute | None
    totals: dict[str, int] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    granted: int = 0
    short_until: float = 0.0

    def holds(self, gateway: str, free: int, busy: int) -> None:
        lease = self.leases.setdefault(gateway, Lease())
        self.granted += free + busy - lease.free - lease.busy
        lease.free, lease.busy = free, busy
        if not free and not busy:
            del self.leases[gateway]

    def grants(self, gateway: str, amount: int) -> None:
        lease = self.leases.setdefault(gateway, Lease())
        lease.free += amount
        self.granted += amount

    def free_at(self, gateway: str) -> int:
        lease = self.leases.get(gateway)
        return 0 if lease is None else lease.free

    def add(self, label: str, amount: int) -> None:
        self.totals[label] = self.totals.get(label, 0) + amount
        while len(self.totals) > KEPT_SPANS:
            del self.totals[min(self.totals)]


@dataclass(frozen=True, slots=True)
class Total:
    """What was used of a budget in one day or month."""

    scope: str
    bound: Bound
    label: str
    amount: int


@dataclass(slots=True)
class Gateway:
    seen: float
    call: int = 0
    keys: set[Key] = field(default_factory=set)
    recalls: set[Key] = field(default_factory=set)


class Ledger:
    """``now`` is in seconds of a clock that never steps; ``unix``, which decides the day and the month, may
    step. It is one class because each rule here reads and changes the same few numbers of a meter."""

    def __init__(self, table: LimitTable, epoch: str, now: float) -> None:
        self.table = table
        self.epoch = epoch
        self._calendar = Calendar()
        self._meters: dict[Key, Meter] = {}
        self._gateways: dict[str, Gateway] = {}
        self._applied: dict[str, int] = {}
        self._durable: dict[str, int] = {}
        self._introduced: set[str] = set()
        self._changed: set[tuple[Key, str]] = set()
        self._awaited: set[str] = set()
        self._settles_at = now

    # ---- what outlives the owner ----

    def restore(self, totals: Iterable[Total], applied: Mapping[str, int], now: float) -> None:
        """What the owner before had on disk. Its gateways are waited for, however long ago they reported: one
        may hold a part of a limit all that time."""
        for total in totals:
            meter = self._meter(total.scope, total.bound)
            meter.totals[total.label] = total.amount
        self._applied.update(applied)
        self._durable.update(applied)
        self._awaited = set(applied)
        self._settles_at = now + SETTLE_S

    def unwritten(self) -> tuple[list[Total], dict[str, int]]:
        """What has to be written, together; the newest batch of each gateway in it, 0 of one that has used
        nothing yet, so that a successor knows of it."""
        totals = []
        for key, label in self._changed:
            amount = self._meters[key].totals.get(label)
            if amount is not None:
                totals.append(Total(*key, label, amount))
        self._changed.clear()
        applied = {name: seq for name, seq in self._applied.items() if seq > self._durable.get(name, -1)}
        return totals, applied

    def written(self, applied: Mapping[str, int]) -> None:
        self._durable.update(applied)

    def not_written(self, totals: Iterable[Total]) -> None:
        """They have to be written again."""
        self._changed.update(((total.scope, total.bound), total.label) for total in totals)

    # ---- a gateway's call ----

    def call(self, asked: LeaseCall, now: float, unix: float) -> LeaseReply:
        """What a gateway tells and asks. A call that comes again, as its answer was lost on the way, has been
        taken in: the gateway is asked for everything, because it does not know what it was granted."""
        self._expire(now)
        gateway = self._gateways.get(asked.gateway)
        knows = gateway is not None and asked.epoch == self.epoch
        if not knows and not asked.whole:
            return self._reply(asked.gateway, whole=True)
        if gateway is None:
            gateway = self._gateways[asked.gateway] = Gateway(now)
        if asked.call <= gateway.call:
            return self._reply(asked.gateway, whole=True)
        gateway.seen, gateway.call = now, asked.call
        self._take_in(asked, gateway, now, unix)
        self._awaited.discard(asked.gateway)
        grants = [self._answer(ask, asked.gateway, now, unix) for ask in asked.asks]
        gateway.keys.update((grant.scope, grant.bound) for grant in grants if grant.amount)
        recalls, gateway.recalls = sorted(gateway.recalls, key=str), set()
        return self._reply(asked.gateway, whole=False, grants=grants, recalls=recalls)

    def _reply(
        self,
        gateway: str,
        *,
        whole: bool,
        grants: list[Grant] | None = None,
        recalls: list[Key] | None = None,
    ) -> LeaseReply:
        applied, durable = self._applied.get(gateway, 0), self._durable.get(gateway, 0)
        return LeaseReply(self.epoch, whole, applied, durable, grants or [], recalls or [])

    def _take_in(self, asked: LeaseCall, gateway: Gateway, now: float, unix: float) -> None:
        is_new = asked.gateway not in self._introduced
        self._introduced.add(asked.gateway)
        self._applied.setdefault(asked.gateway, 0)
        if asked.whole:
            for key in gateway.keys:
                self._meters[key].holds(asked.gateway, 0, 0)
            gateway.keys.clear()
        for spent in self._news(asked, is_new):
            self._use(spent, now, unix)
        for held in asked.held:
            key = held.scope, held.bound
            self._meter(held.scope, held.bound).holds(asked.gateway, held.free, held.busy)
            (gateway.keys.add if held.free or held.busy else gateway.keys.discard)(key)

    def _news(self, asked: LeaseCall, is_new: bool) -> Iterator[Spent]:
        """What this owner has not counted. Use by the minute is not on disk: gateways report it to a
        new owner, once, also where its answer is lost."""
        for batch in asked.batches:
            if batch.seq > self._applied.get(asked.gateway, 0):
                self._applied[asked.gateway] = batch.seq
                yield from (spent for spent in batch.spent if not (is_new and spent.bound in MINUTES))
        if is_new:
            yield from asked.recent

    def _use(self, spent: Spent, now: float, unix: float) -> None:
        meter = self._meter(spent.scope, spent.bound)
        if meter.minute is not None:
            meter.minute.add(now - max(0.0, spent.age_s), spent.amount)
        elif spent.bound in BUDGETS:
            label = self._calendar.span(spent.bound, self.table.time_zone(spent.tenant), unix).label
            meter.add(label, spent.amount)
            self._changed.add(((spent.scope, spent.bound), label))

    def _answer(self, ask: Ask, gateway: str, now: float, unix: float) -> Grant:
        limit = self.table.of(ask.scope).get(ask.bound)
        if limit is None:
            amount = max(ask.all, ask.want)
            return Grant(ask.scope, ask.bound, amount, NO_LIMIT, 0, 0.0, 0.0, short=False, others=False)
        meter = self._meter(ask.scope, ask.bound)
        used, resets_s = self._used(meter, ask, now, unix)
        room = limit - used - meter.granted
        if now < self._settles_at and self._awaited:
            return Grant(
                ask.scope, ask.bound, 0, limit, max(0, room), resets_s, SOON_S, short=True, others=True
            )
        amount = self._part(ask, meter, limit, room, now)
        others = False
        if ask.need > amount:
            meter.short_until = now + SHORT_S
            others = self._recall(ask, meter, gateway)
        if amount:
            meter.grants(gateway, amount)
        unused = limit - used - meter.free_at(gateway)
        retry_s = _retry_s(ask, meter, unused, now, resets_s) if ask.need > amount else 0.0
        left = max(0, room - amount)
        is_short = now < meter.short_until
        return Grant(
            ask.scope, ask.bound, amount, limit, left, resets_s, retry_s, short=is_short, others=others
        )

    def _part(self, ask: Ask, meter: Meter, limit: int, room: int, now: float) -> int:
        if room < ask.need or room <= 0:
            return 0
        needed = min(ask.all, room)
        if now < meter.short_until:
            return needed
        sharers = max(1, len(meter.leases))
        spare = min((room - needed) // (SPARE_SHARE * sharers), limit // SLICE_SHARE)
        return needed + min(spare, max(0, ask.want - needed))

    def _recall(self, ask: Ask, meter: Meter, gateway: str) -> bool:
        """Ask the others for what they do not use."""
        key, found = (ask.scope, ask.bound), False
        for name, lease in meter.leases.items():
            other = self._gateways.get(name)
            if name != gateway and other is not None and lease.free > 0:
                other.recalls.add(key)
                found = True
        return found

    def _used(self, meter: Meter, ask: Ask, now: float, unix: float) -> tuple[int, float]:
        """And in how many seconds the window ends, or its oldest use leaves it."""
        if meter.minute is not None:
            used = meter.minute.used(now)
            return used, meter.minute.seconds_until(1, now) if used else 0.0
        if ask.bound not in BUDGETS:
            return 0, SOON_S
        span = self._calendar.span(ask.bound, self.table.time_zone(ask.tenant), unix)
        return meter.totals.get(span.label, 0), span.ends - unix

    def _meter(self, scope: str, bound: Bound) -> Meter:
        meter = self._meters.get((scope, bound))
        if meter is None:
            minute = SlidingMinute() if bound in MINUTES else None
            meter = self._meters[scope, bound] = Meter(minute)
        return meter

    # ---- the end of gateways, and what is shown ----

    def _expire(self, now: float) -> None:
        gone = [name for name, gateway in self._gateways.items() if gateway.seen < now - GONE_S]
        for name in gone:
            for key in self._gateways.pop(name).keys:
                self._meters[key].holds(name, 0, 0)

    def used(self, scope: str, tenant: str, now: float, unix: float) -> dict[Bound, tuple[int, int]]:
        """For each bound of a scope: what was used in its window, and what gateways hold of the rest."""
        found = {}
        for bound in self.table.of(scope):
            meter = self._meter(scope, bound)
            used, _ = self._used(meter, Ask(scope, bound, tenant, 0, 0, 0), now, unix)
            found[bound] = used, meter.granted
        return found


def _retry_s(ask: Ask, meter: Meter, unused: int, now: float, resets_s: float) -> float:
    """When there may be enough for a refused request. ``unused``: but for what is free at its gateway, which
    has taken that from its need."""
    if unused >= ask.need:
        return SOON_S  # only requests that run hold it, and most will use less
    if meter.minute is not None:
        return meter.minute.seconds_until(ask.need - max(0, unused), now)
    return resets_s
