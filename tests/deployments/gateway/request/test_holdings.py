"""What a request holds, and hands over."""

from __future__ import annotations

import time
from collections.abc import Sequence

from test_account import NoLimits

from deployments.gateway.request.holdings import Holdings
from serve_app.quotas.book import Book
from serve_app.quotas.limits import Bound, Limit, LimitTable
from serve_app.quotas.purse import Part, Purse, Taken

SENDER, USE = "tenant:acme", "use:acme/m"


class Permits(NoLimits):
    """One request at a time, of each scope."""

    def __init__(self) -> None:
        super().__init__()
        table = LimitTable({})
        table.put([Limit(SENDER, parallel_requests=1), Limit(USE, parallel_requests=1)])
        self.book = Book("gateway", table)
        for scope in (SENDER, USE):
            self.purse(scope).free = 1

    def purse(self, scope: str) -> Purse:
        return self.book.purse(scope, Bound.PARALLEL, "acme")

    async def reserve(self, parts: Sequence[Part], *, on_credit: bool = True) -> list[Taken]:
        taken = self.book.take(parts, time.monotonic())
        assert taken is not None
        return taken

    def settle(self, taken: Taken, used: int) -> None:
        self.book.settle(taken, used, time.monotonic())


async def test_permits_of_the_sender_are_handed_over_and_those_of_the_model_are_free_again() -> None:
    """Who gets them asks a member once more, and counts for the model then."""
    permits = Permits()
    first, second = Holdings(permits, "acme"), Holdings(permits, "acme")
    await first.count([SENDER])
    await first.count([USE])

    first.hand_permits_to(second, [SENDER])

    assert (permits.purse(SENDER).busy, permits.purse(USE).busy) == (1, 0)
    first.release()
    assert permits.purse(SENDER).busy == 1
    second.release()
    assert permits.purse(SENDER).busy == 0
