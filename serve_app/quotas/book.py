"""A gateway's book: what it was granted of each limit, and what its requests have reserved of that.

Nothing here waits. A request takes what it may use at most from every meter that it counts for, or from none
(``take``); at its end it says what it used (``settle``). What is short is asked of the owner (``call``,
``apply``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from serve_app.quotas.limits import MINUTES, MOST, Bound, LimitTable
from serve_app.quotas.messages import Ask, Grant, Held, LeaseCall, LeaseReply
from serve_app.quotas.purse import (
    Flights,
    Outbox,
    Part,
    Purse,
    Taken,
    credit,
    is_scarce,
    of_last_minute,
    spend,
)
from serve_app.quotas.purses import Purses
from serve_app.quotas.windows import MINUTE_S

MOST_ASKED = 10**18
"""An integer of 64 bits holds it, and what is wanted beside it."""

IDLE_S = 5.0
"""What was not touched for so long is given back."""

TIGHT_S = 1.0
"""So long after the owner said that a meter is short, free parts of it are given back at once."""

REFUSED_S = 0.1
"""So long a refusal holds for later requests that need as much, so that a storm does not become one of
calls."""

AHEAD = 2
"""A slice lasts for so many periods of the newest use."""


class Book:
    """``now`` is in seconds of a clock that never steps. It is one class because taking,
    settling, reporting and granting all change a purse."""

    def __init__(self, gateway: str, table: LimitTable) -> None:
        self.gateway = gateway
        self.table = table
        self.epoch = ""
        self._whole = True
        self._calls = 0
        self._outbox = Outbox()
        self._purses = Purses()
        self._dirty: dict[Purse, None] = {}
        self._disowned: set[tuple[str, Bound]] = set()
        self._flights = Flights()
        self._looked_at = 0.0

    # ---- a request ----

    def purse(self, scope: str, bound: Bound, tenant: str) -> Purse:
        return self._purses.of(scope, bound, tenant)

    def _changed(self, purse: Purse) -> None:
        self._purses.keep(purse)
        self._dirty[purse] = None

    def known(self, scopes: Iterable[str]) -> Iterator[tuple[Purse, int]]:
        """The purses of these scopes that there are, with their limits."""
        for scope in scopes:
            for bound, limit in self.table.of(scope).items():
                purse = self._purses.get((scope, bound))
                if purse is not None:
                    yield purse, limit

    def take(self, parts: Sequence[Part], now: float) -> list[Taken] | None:
        """Reserve all of them, or ``None`` if one purse has too little."""
        for purse, amount in parts:
            if purse.free < amount:
                return None
        taken = []
        for purse, amount in parts:
            purse.free -= amount
            purse.taken += amount
            self._changed(purse)
            self._purses.touch(purse, now)
            purse.busy += amount
            taken.append(Taken(purse, amount, now))
        self._flights.begin(taken)
        return taken

    def take_on_credit(self, parts: Sequence[Part], now: float) -> list[Taken] | None:
        """As ``take``, also what the owner has not granted yet: the first request of a key need not wait for
        it. If other gateways have used up the limit, it is exceeded by what was taken so."""
        lacking = [(purse, amount - purse.free) for purse, amount in parts if purse.free < amount]
        if any(amount > credit(purse, self._limit(purse, 0), now) for purse, amount in lacking):
            return None
        for purse, amount in lacking:
            purse.free += amount
            purse.lent += amount
        return self.take(parts, now)

    def settle(self, taken: Taken, used: int, now: float) -> None:
        """The request has used so much of what it took, or is sure to; it may be more. Once. Of one that
        lasted for more than a minute the last minute's part counts by the minute."""
        if taken.is_over:
            return
        taken.is_over = True
        purse = taken.purse
        self._changed(purse)
        if purse.bound is Bound.TOKENS and taken.at <= now - MINUTE_S:
            if not taken.is_late:
                purse.busy -= taken.amount
            self._purses.touch(purse, now)  # it alone remembers what counts by the minute
            spend(purse, round(used * MINUTE_S / (now - taken.at)), now, now)
            return
        purse.busy -= taken.amount
        if purse.bound is Bound.PARALLEL:
            purse.free += taken.amount
        else:
            purse.free += max(0, taken.amount - used)
            spend(purse, used, taken.at if purse.bound in MINUTES else now, now)

    def spend(self, parts: Iterable[Part], now: float) -> None:
        """Count what was used without being reserved."""
        for purse, used in parts:
            purse.touched = now
            spend(purse, used, now, now)
            self._changed(purse)

    @contextmanager
    def waiting(self, parts: Sequence[Part]) -> Iterator[None]:
        """A request waits for all of them: the owner is asked for what is short, and none is given back."""
        for purse, amount in parts:
            purse.waiting.append(amount)
            self._changed(purse)
        try:
            yield
        finally:
            for purse, amount in parts:
                purse.waiting.remove(amount)

    def never_fits(self, parts: Sequence[Part]) -> Part | None:
        """The part that is more than its whole limit."""
        return next((part for part in parts if part[1] > self._limit(part[0], MOST)), None)

    def _limit(self, purse: Purse, default: int) -> int:
        return self.table.of(purse.scope).get(purse.bound, default)

    def refused(self, parts: Sequence[Part], now: float) -> Part | None:
        """The part that the owner refused a moment ago."""
        for purse, amount in parts:
            if purse.free < amount and purse.refused_until > now and amount >= purse.refused_need:
                return purse, amount
        return None

    # ---- the owner ----

    def call(self, now: float) -> LeaseCall:
        """What to tell and to ask now. One call at a time."""
        self._calls += 1
        self._dirty |= dict.fromkeys(self._flights.left_minute(now))
        self._give_up_idle(now)
        whole = self._whole
        purses = list(self._purses.values()) if whole else list(self._dirty)
        self._dirty.clear()
        asks = [ask for purse in purses if (ask := self._ask(purse, now)) is not None]
        self._outbox.close_batch(purses)
        held = [each.held() for each in purses]
        held += [Held(*key, "", 0, 0) for key in self._disowned if key not in self._purses]
        self._disowned.clear()
        batches = self._outbox.batches(now, whole=whole)
        recent = of_last_minute(purses, now) if whole else []
        return LeaseCall(self.gateway, self._calls, self.epoch, whole, held, batches, recent, asks)

    def failed(self, call: LeaseCall) -> None:
        """No answer came: the next call tells the same again."""
        for held in call.held:
            self._report_again((held.scope, held.bound))

    def apply(self, call: LeaseCall, reply: LeaseReply, now: float) -> None:
        """What the owner answered to ``call``."""
        if reply.whole:
            self.failed(call)
            self._whole = True
            return
        self.epoch, self._whole = reply.epoch, False
        self._outbox.took(reply.applied, reply.durable)
        for ask, grant in zip(call.asks, reply.grants, strict=True):
            self._granted(ask, grant, now)
        for scope, bound in reply.recalls:
            purse = self._purses.get((scope, bound))
            if purse is not None:
                purse.tight_until = now + TIGHT_S
            self._report_again((scope, bound))

    def _report_again(self, key: tuple[str, Bound]) -> None:
        """Also that there is nothing, where the owner takes this gateway to have some."""
        purse = self._purses.get(key)
        if purse is None:
            self._disowned.add(key)
        else:
            self._dirty[purse] = None

    @property
    def has_news(self) -> bool:
        return bool(self._dirty or self._disowned) or self._whole

    @property
    def is_idle(self) -> bool:
        """There is nothing that the owner would have to know of."""
        return not self._purses and not self._disowned and self._outbox.is_empty

    def _granted(self, ask: Ask, grant: Grant, now: float) -> None:
        purse = self._purses.get((grant.scope, grant.bound))
        if purse is None:
            return  # what no report claims returns to the owner
        _tell(purse, ask, grant, now)
        if grant.amount:
            purse.free += grant.amount
            self._dirty[purse] = None

    def _ask(self, purse: Purse, now: float) -> Ask | None:
        """What is free and not needed is given back first."""
        waiting, want = sum(purse.waiting), AHEAD * purse.taken
        purse.taken, purse.lent_told = 0, purse.lent
        if now < purse.tight_until:
            is_enough = purse.waiting and purse.free >= min(purse.waiting)
            purse.free, want = min(purse.free, waiting) if is_enough else 0, 0
        elif purse.touched <= now - IDLE_S:
            purse.free = min(purse.free, waiting)
        if waiting > purse.free:
            need, lacking = max(1, min(purse.waiting) - purse.free), min(MOST_ASKED, waiting - purse.free)
            return Ask(purse.scope, purse.bound, purse.tenant, need, lacking, lacking + want)
        if AHEAD * purse.free < want or purse.lent:
            return Ask(purse.scope, purse.bound, purse.tenant, 0, 0, max(0, want - purse.free))
        return None

    def _give_up_idle(self, now: float) -> None:
        """Report what was not used lately, so that it is given back; forget empty purses."""
        if now < self._looked_at + IDLE_S:
            return
        self._looked_at = now
        for purse in list(self._purses.values()):
            if purse.touched > now - IDLE_S:
                break  # the others are younger
            is_kept = purse.touched >= now - MINUTE_S or purse.is_used or purse in self._dirty
            if purse.free:
                self._dirty[purse] = None
            elif not is_kept and not is_scarce(purse, self._limit(purse, 0), now):  # a new one gives credit
                self._purses.forget(purse)


def _tell(purse: Purse, ask: Ask, grant: Grant, now: float) -> None:
    """What the owner says of the limit, and of a refusal."""
    purse.limit, purse.left, purse.resets_s = grant.limit, grant.left, grant.resets_s
    purse.told_at, purse.lent, purse.lent_told = now, purse.lent - purse.lent_told, 0
    if grant.short:
        purse.tight_until = now + TIGHT_S
    if ask.need > grant.amount:
        purse.others, purse.retry_s = grant.others, grant.retry_s
        if not grant.others:
            purse.refused_until = now + min(REFUSED_S, grant.retry_s)
            purse.refused_need = ask.need + purse.free
