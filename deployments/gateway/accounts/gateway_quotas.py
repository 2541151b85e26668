"""This gateway's part of all limits: requests reserve from its book; what is short is asked of the owner.

One call at a time goes to the owner: at once where a request waits or where others wait for what is free
here, else four times a second with what has changed, else once a second while anything is held."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from functools import partial
from uuid import uuid4

from serve_app.errors import AccountsUnavailable, BudgetSpent, LimitsUnavailable, PromptlyError, RateLimited
from serve_app.quotas.book import Book
from serve_app.quotas.lengths import Lengths
from serve_app.quotas.limits import AT_GATE, BUDGETS, MONEY, NANO, LimitTable
from serve_app.quotas.messages import SOON_S, LeaseCall, LeaseReply
from serve_app.quotas.purse import Part, Purse, Taken
from serve_app.usage.prices import Price, Prices

PERIOD_S = 0.25
BEAT_S = 1.0
PATIENCE_S = 1.5
"""How long a request waits while other gateways are asked for what they do not use; else it is refused at
once."""

AGAIN_S = 0.04
"""Between two questions for it."""

TOLD_S = 0.005
"""After so long the owner learns of what was taken on credit: by then the request is on its way to a member,
and several that begin together make one call."""

MOST_DISBELIEVED = 256

logger = logging.getLogger("ray.serve")

Lease = Callable[[LeaseCall], Awaitable[LeaseReply]]
"""The owner's call. Raises: AccountsUnavailable."""


class GatewayQuotas:
    """Made inside a running event loop; ``stop`` ends it. ``cached_rate``: the part of its price that an
    answer from the cache costs. It is one class because whether a request waits, and what the owner is told
    and when, depend on one another."""

    def __init__(self, lease: Lease, table: LimitTable, prices: Prices, cached_rate: float) -> None:
        self.book = Book(uuid4().hex, table)
        self.lengths = Lengths()
        self.cached_rate = cached_rate
        self._prices = prices
        self._lease = lease
        self._away = ""
        self._disbelieved: set[tuple[str, str]] = set()
        self._wake = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._told_soon: asyncio.TimerHandle | None = None
        self._rests = False
        self._running = asyncio.get_running_loop().create_task(self._forever(), context=Context())

    def price(self, model: str) -> Price:
        return self._prices.price(model)

    def unix(self) -> float:
        return time.time()

    async def reserve(self, parts: Sequence[Part], *, on_credit: bool = True) -> list[Taken]:
        """``on_credit``: without waiting for the owner's word, if it is a small part of the limit; without it
        the owner has said what is left. Raises: RateLimited, BudgetSpent, LimitsUnavailable: nothing is
        reserved."""
        now = time.monotonic()
        is_told = on_credit or not any(purse.is_new for purse, _ in parts)
        taken = self.book.take(parts, now) if is_told else None
        if taken is None and on_credit and not self._away:
            taken = self.book.take_on_credit(parts, now)
            if taken is not None and self._told_soon is None:
                self._told_soon = asyncio.get_running_loop().call_later(TOLD_S, self._wake.set)
        if taken is not None:
            return taken
        never = self.book.never_fits(parts)
        if never is not None:  # it is not asked for: a number without a bound could not even be told
            raise self._refusal(*never)
        return await self._waited_for(parts)

    def settle(self, taken: Taken, used: int) -> None:
        self.book.settle(taken, used, time.monotonic())
        if self._rests or taken.purse.tight_until:
            self._wake.set()  # no report was due, or others wait for it

    def spend(self, parts: Iterable[Part]) -> None:
        self.book.spend(parts, time.monotonic())
        if self._rests:
            self._wake.set()

    def disbelieve(self, model: str, member: str) -> None:
        """Said once of each."""
        if (model, member) not in self._disbelieved and len(self._disbelieved) < MOST_DISBELIEVED:
            self._disbelieved.add((model, member))
            logger.warning(
                "member %s of model %s reported more tokens than its request can have used; it counts the "
                "most that it can be",
                member,
                model,
            )

    async def stop(self) -> None:
        self._running.cancel()
        if self._told_soon is not None:
            self._told_soon.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    # ---- a request that waits ----

    async def _waited_for(self, parts: Sequence[Part]) -> list[Taken]:
        book, until = self.book, time.monotonic() + PATIENCE_S
        while True:
            now = time.monotonic()
            refused = book.refused(parts, now)
            if refused is not None:
                raise self._refusal(*refused)
            with book.waiting(parts):
                await self._asked()
            now = time.monotonic()
            taken = book.take(parts, now)
            if taken is not None:
                return taken
            short = next((purse, amount) for purse, amount in parts if purse.free < amount)
            if self._away:
                raise LimitsUnavailable(self._away)
            if now >= until:
                raise self._refusal(*short)
            if short[0].others:
                await asyncio.sleep(AGAIN_S)

    async def _asked(self) -> None:
        """A call that begins from now on has been answered, or has failed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        self._wake.set()
        await asyncio.shield(self._next)

    def _refusal(self, purse: Purse, amount: int) -> PromptlyError:
        limit = self.book.table.of(purse.scope).get(purse.bound, 0)
        unit = NANO if purse.bound in MONEY else 1
        limited = f"{_whose(purse.scope)}: {purse.bound.value} is limited to {limit / unit:g}"
        message = f"{limited}; this request may use {amount / unit:g}"
        kind = partial(BudgetSpent if purse.bound in BUDGETS else RateLimited, limit=f"{limited}.")
        if amount > limit:
            helps = ": shorten the prompt, or set a lower `max_tokens`"
            advice = helps if limit and purse.bound not in AT_GATE else ""
            return kind(f"{message}, more than ever fits{advice}.", None)
        if purse.bound in BUDGETS and purse.retry_s <= SOON_S:
            return RateLimited(
                f"{message}, and requests that run have reserved the rest.", 1, limit=f"{limited}."
            )
        return kind(f"{message}, and less is left.", max(1, math.ceil(purse.retry_s)))

    # ---- the owner ----

    async def _forever(self) -> None:
        while True:
            pause_s = self._pause_s()
            self._rests = pause_s is None
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._rests = False
            await asyncio.sleep(0)  # all requests of this moment ask together
            self._wake.clear()
            waiting, self._next = self._next, None
            try:
                await self._tell()
            except Exception:
                logger.exception("the limits' owner did not get a report")
                await asyncio.sleep(PERIOD_S)
            finally:
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)

    def _pause_s(self) -> float | None:
        """Seconds until the next report to the owner is due; ``None``: there is nothing to report."""
        if self.book.is_idle:
            return None
        return PERIOD_S if self.book.has_news else BEAT_S

    async def _tell(self) -> None:
        """A new owner gets a full report at once."""
        reply = await self._report()
        if reply is not None and reply.whole:
            await self._report()

    async def _report(self) -> LeaseReply | None:
        """``None``: the owner did not answer."""
        self._told_soon = None
        call = self.book.call(time.monotonic())
        try:
            reply = await self._lease(call)
        except AccountsUnavailable as error:
            self.book.failed(call)
            if not self._away:
                logger.error("limits go on with what was granted: %s", error.reason)
            self._away = error.reason
            return None
        except BaseException:
            self.book.failed(call)
            raise
        if self._away:
            logger.info("the limits' owner answers again")
        self._away = ""
        self.book.apply(call, reply, time.monotonic())
        return reply


def _whose(scope: str) -> str:
    """A scope in a client's words. Of other senders it learns nothing."""
    kind, _, name = scope.partition(":")
    last = name.rpartition("/")[2]
    words = {
        "key": "This API key",
        "user": f"User {last!r}",
        "tenant": "This tenant",
        "model": f"Model {name!r}",
        "use": f"This tenant's use of model {name.partition('/')[2]!r}",
    }
    return words[kind]
