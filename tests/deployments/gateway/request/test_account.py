"""What a request's account learns from its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from support.records import a_record

from deployments.gateway.request.account import Account
from deployments.gateway.request.order import Order
from serve_app.quotas.book import Book
from serve_app.quotas.lengths import FIRST_GUESS, Lengths
from serve_app.quotas.limits import LimitTable
from serve_app.quotas.purse import Part, Taken
from serve_app.request.auth import Identity
from serve_app.request.timing import Timeline
from serve_app.usage.prices import FREE, Price


class NoLimits:
    """A gateway's quotas where no scope has a limit."""

    cached_rate = 0.0

    def __init__(self) -> None:
        self.book = Book("gateway", LimitTable({}))
        self.lengths = Lengths()
        self.disbelieved: list[tuple[str, str]] = []

    def price(self, model: str) -> Price:
        return FREE

    async def reserve(self, parts: Sequence[Part], *, on_credit: bool = True) -> list[Taken]:
        assert not parts, "nothing is limited"
        return []

    def settle(self, taken: Taken, used: int) -> None:
        raise AssertionError("nothing was taken")

    def spend(self, parts: Iterable[Part]) -> None:
        assert not list(parts), "nothing is limited"

    def unix(self) -> float:
        return time.time()

    def disbelieve(self, model: str, member: str) -> None:
        self.disbelieved.append((model, member))


async def test_a_pace_is_learned_from_all_that_an_engine_made_and_lengths_from_what_is_believed() -> None:
    """An engine that makes more than its request allows is as fast as it is."""
    quotas = NoLimits()
    account = Account(quotas, Identity("acme"), "/v1/chat/completions", Timeline(time.monotonic_ns), {})
    await account.place(Order("m", "m", prompt=5, output=4, size=100))

    believed = account.settle(a_record(5, 8000, upstream_ms=2000.0))

    assert believed is not None
    assert believed.output == 4 * 4 + 1024
    assert quotas.disbelieved == [("m", "e0")]
    assert quotas.lengths.pace("m") == 4000
    assert quotas.lengths.answer(["tenant:acme"], "m") == FIRST_GUESS
