"""What one request holds of the limits that it is in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from serve_app.errors import BudgetSpent, RateLimited
from serve_app.quotas.book import Book
from serve_app.quotas.cost import Use, shares
from serve_app.quotas.lengths import Lengths
from serve_app.quotas.limits import AT_GATE, BUDGETS, Bound, calendar_of
from serve_app.quotas.purse import Part, Purse, Taken
from serve_app.usage.prices import FREE, Price


class Quotas(Protocol):
    """What a gateway has of all limits."""

    book: Book
    lengths: Lengths
    cached_rate: float

    def price(self, model: str) -> Price: ...

    async def reserve(self, parts: Sequence[Part], *, on_credit: bool = True) -> list[Taken]:
        """``on_credit``: a small part of a limit is had before its owner is asked. Raises: RateLimited,
        BudgetSpent, LimitsUnavailable."""
        ...

    def settle(self, taken: Taken, used: int) -> None: ...

    def spend(self, parts: Iterable[Part]) -> None: ...

    def unix(self) -> float: ...

    def disbelieve(self, model: str, member: str) -> None:
        """A member has reported more tokens than its request can have used."""
        ...


class Holdings:
    """What is reserved, and permits of requests that run. It is released once the request is over."""

    def __init__(self, quotas: Quotas, tenant: str) -> None:
        self._quotas = quotas
        self._tenant = tenant
        self._taken: list[Taken] = []
        self._permits: list[Taken] = []
        self.price: Price = FREE
        self.is_over = False

    def parts(self, scopes: Sequence[str], bounds: frozenset[Bound], use: Use) -> list[Part]:
        """What ``use`` takes of the limits of these scopes and bounds."""
        book, tenant, price = self._quotas.book, self._tenant, self.price
        return [
            (book.purse(scope, bound, calendar_of(scope, tenant)), use.of(bound, price))
            for scope in scopes
            for bound in book.table.of(scope)
            if bound in bounds
        ]

    async def count(self, scopes: Sequence[str], bounds: frozenset[Bound] = AT_GATE) -> None:
        """The request itself. Raises: RateLimited, LimitsUnavailable."""
        parts = self.parts(scopes, bounds, Use(0, 0))
        if not parts:
            return
        for taken in await self._quotas.reserve(parts):
            if taken.purse.bound is Bound.PARALLEL and not self.is_over:
                self._permits.append(taken)
            else:
                self._quotas.settle(taken, taken.amount)

    async def reserve(
        self,
        scopes: Sequence[str],
        bounds: frozenset[Bound],
        use: Use,
        less_of: Callable[[Sequence[Part]], Use | None] = lambda _: None,
        *,
        on_credit: bool = True,
    ) -> tuple[list[Taken], Use]:
        """Reserves as much, or what ``less_of`` says of refused parts. Raises: as ``Quotas.reserve``."""
        parts = self.parts(scopes, bounds, use)
        try:
            taken = await self._quotas.reserve(parts, on_credit=on_credit)
        except (RateLimited, BudgetSpent):
            less = less_of(parts)
            if less is None:
                raise
            use = less
            taken = await self._quotas.reserve(self.parts(scopes, bounds, less))
        self._keep(taken)
        return taken, use

    def _keep(self, taken: Sequence[Taken]) -> None:
        """Until the end, which may have come meanwhile."""
        if not self.is_over:
            self._taken += taken
            return
        for each in taken:
            self._quotas.settle(each, 0)

    def pay(self, used: Use) -> None:
        """For what was reserved, in however many steps."""
        steps: dict[Purse, list[Taken]] = {}
        for each in self._taken:
            steps.setdefault(each.purse, []).append(each)
        for purse, of_purse in steps.items():
            total = used.of(purse.bound, self.price)
            for each, part in zip(of_purse, shares([each.amount for each in of_purse], total), strict=True):
                self._quotas.settle(each, part)
        self._taken = []

    def spend(self, scopes: Sequence[str], bounds: frozenset[Bound], used: Use, price: Price) -> None:
        """What was not reserved before."""
        self.price = price
        self._quotas.spend(self.parts(scopes, bounds, used))

    def release(self) -> None:
        """The request no longer runs."""
        for permit in self._permits:
            self._quotas.settle(permit, 0)
        self._permits = []

    def hand_permits_to(self, other: Holdings, scopes: Collection[str]) -> None:
        """Those of these scopes; the others are released."""
        other._permits = [permit for permit in self._permits if permit.purse.scope in scopes]
        self._permits = [permit for permit in self._permits if permit.purse.scope not in scopes]
        self.release()

    def others_hold(self) -> bool:
        """Other requests at this gateway have reserved some of the narrowest budget that this one has."""
        budgets = {each.purse for each in self._taken if each.purse.bound in BUDGETS}
        purse = min(budgets, key=lambda each: each.left + each.free, default=None)
        return purse is not None and purse.busy > sum(
            each.amount for each in self._taken if each.purse is purse
        )
