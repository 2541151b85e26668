"""What a gateway takes of a limit before the owner has answered."""

from __future__ import annotations

import pytest

from serve_app.quotas.book import Book
from serve_app.quotas.ledger import Ledger
from serve_app.quotas.limits import Bound, Limit, LimitTable
from serve_app.quotas.purse import AMPLE_SHARE, CREDIT_SHARE, Purse

SCOPE, TENANT, LIMIT = "tenant:acme", "acme", 1000
NOON = 1_782_043_200.0  # 2026-06-21 12:00 UTC


class Both:
    """A ledger and the books of two gateways."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.table = LimitTable({})
        self.table.put([Limit(SCOPE, requests_per_minute=limit)])
        self.ledger = Ledger(self.table, "owner", 0.0)
        self.first, self.second = Book("first", self.table), Book("second", self.table)

    def exchange(self, book: Book, now: float) -> None:
        for _ in range(2):  # a new gateway is asked for everything
            call = book.call(now)
            book.apply(call, self.ledger.call(call, now, NOON + now), now)

    def used(self, now: float) -> tuple[int, int]:
        return self.ledger.used(SCOPE, TENANT, now, NOON + now)[Bound.REQUESTS]


def purse(book: Book) -> Purse:
    return book.purse(SCOPE, Bound.REQUESTS, TENANT)


def on_credit(book: Book, amount: int, now: float = 0.0) -> bool:
    """Whether a request got it; then it has used it."""
    taken = book.take_on_credit([(purse(book), amount)], now)
    for each in taken or []:
        book.settle(each, amount, now)
    return taken is not None


def test_a_first_request_waits_for_nobody_and_counts() -> None:
    both = Both()
    assert both.first.take([(purse(both.first), 1)], 0.0) is None
    assert on_credit(both.first, 1)
    both.exchange(both.first, 0.25)
    used, held = both.used(0.25)
    assert used == 1
    assert used + held <= LIMIT


def test_no_more_than_a_hundredth_of_a_limit_is_taken_on_credit() -> None:
    both = Both()
    assert not on_credit(both.first, LIMIT // CREDIT_SHARE + 1)
    for _ in range(LIMIT // CREDIT_SHARE):
        assert on_credit(both.first, 1)
    assert not on_credit(both.first, 1)


@pytest.mark.parametrize("limit", [0, 1, CREDIT_SHARE - 1])
def test_a_small_limit_gives_no_credit(limit: int) -> None:
    assert not on_credit(Both(limit).first, 1)


def test_a_gateway_that_knows_how_little_is_left_takes_nothing_on_credit() -> None:
    both = Both()
    all_but = LIMIT - LIMIT // AMPLE_SHARE + 1
    both.first.spend([(purse(both.first), all_but)], 0.0)
    both.exchange(both.first, 0.0)
    assert on_credit(both.second, 1)  # it does not know yet
    both.exchange(both.second, 0.25)
    assert purse(both.second).left < LIMIT // AMPLE_SHARE
    purse(both.second).free = 0
    assert not on_credit(both.second, 1, 0.25)


def test_after_the_owner_has_answered_there_is_credit_again() -> None:
    both = Both()
    assert on_credit(both.first, LIMIT // CREDIT_SHARE)
    both.exchange(both.first, 0.25)
    left = purse(both.first).free
    assert left
    assert on_credit(both.first, left + LIMIT // CREDIT_SHARE, 0.25)
    assert not on_credit(both.first, 1, 0.25)


def test_nothing_is_taken_on_credit_before_a_request_that_waits() -> None:
    both = Both()
    with both.first.waiting([(purse(both.first), 500)]):
        assert not on_credit(both.first, 1)
    assert on_credit(both.first, 1)


def test_all_or_nothing_is_taken_of_several_limits() -> None:
    both = Both()
    both.table.put([Limit("user:acme/ann", requests_per_minute=1)])
    other = both.first.purse("user:acme/ann", Bound.REQUESTS, TENANT)
    assert both.first.take_on_credit([(purse(both.first), 1), (other, 1)], 0.0) is None
    assert purse(both.first).free == purse(both.first).busy == 0
