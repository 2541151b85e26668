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


@pytest.mark.parametrize(
    ("bound", "lasts_s"),
    [(Bound.TOKENS_MONTH, 9 * 86_400.0), (Bound.TOKENS_DAY, 43_200.0), (Bound.PARALLEL, 3600.0)],
)
def test_a_limit_that_is_used_up_gives_no_credit_again_however_seldom_it_is_asked_for(
    bound: Bound, lasts_s: float
) -> None:
    """9 days and 12 hours are left of the month, and of the day."""
    table = LimitTable({})
    table.put([Limit(SCOPE, **{bound.value: 10_000})])
    ledger, book, other = Ledger(table, "owner", 0.0), Book("here", table), Book("there", table)

    def told(of: Book, now: float) -> None:
        for _ in range(2):
            call = of.call(now)
            of.apply(call, ledger.call(call, now, NOON + now), now)

    all_of_it = other.purse(SCOPE, bound, TENANT)
    with other.waiting([(all_of_it, 10_000)]):
        told(other, 0.0)
    assert other.take([(all_of_it, 10_000)], 0.0)
    told(other, 0.0)

    lent, now = 0, 0.0
    while now < lasts_s - 70:
        told(other, now)
        parts = [(book.purse(SCOPE, bound, TENANT), 1)]
        lent += len(book.take_on_credit(parts, now) or [])
        for after in (0.1, 6.0, 61.0, 67.0):
            told(other, now + after)
            told(book, now + after)
        now += max(70.0, lasts_s / 20)
    assert lent == 1


def test_after_a_budget_s_day_its_first_request_waits_for_nobody() -> None:
    table = LimitTable({})
    table.put([Limit(SCOPE, tokens_per_day=10_000)])
    ledger, book = Ledger(table, "owner", 0.0), Book("here", table)
    purse = book.purse(SCOPE, Bound.TOKENS_DAY, TENANT)
    book.spend([(purse, 10_000)], 0.0)
    with book.waiting([(purse, 1)]):
        for _ in range(2):
            call = book.call(0.0)
            book.apply(call, ledger.call(call, 0.0, NOON), 0.0)
    assert book.take_on_credit([(purse, 1)], 43_000.0) is None
    assert book.take_on_credit([(purse, 1)], 43_201.0) is not None


def test_four_gateways_that_have_not_heard_exceed_a_limit_by_a_hundredth_at_most() -> None:
    both = Both(10_000)
    both.first.spend([(purse(both.first), 10_000)], 0.0)
    both.exchange(both.first, 0.0)
    late = [Book(f"late-{number}", both.table) for number in range(4)]
    lent = 0
    for book in late:
        while book.take_on_credit([(purse(book), 1)], 0.0):
            lent += 1
        both.exchange(book, 0.1)
        assert not on_credit(book, 1, 0.1)
    assert 0 < lent <= 100


def test_an_owner_that_had_forgotten_the_gateway_learns_what_was_taken_on_credit() -> None:
    """It asks for everything first; the question must not be lost in that."""
    both = Both()
    assert on_credit(both.first, 1)
    both.exchange(both.first, 0.0)
    both.exchange(both.second, 100.0)  # the first gateway has long been silent
    both.first = Book("first", both.table)
    both.first.epoch, both.first._whole = both.ledger.epoch, False
    both.first._calls = 1000
    assert on_credit(both.first, 1, 100.0)
    both.exchange(both.first, 100.1)
    assert not purse(both.first).is_new
    assert purse(both.first).lent == 0


def test_a_request_that_ended_at_once_leaves_no_credit_untold() -> None:
    both = Both()
    [taken] = both.first.take_on_credit([(purse(both.first), 1)], 0.0) or []
    both.first.settle(taken, 0, 0.0)
    both.exchange(both.first, 0.1)
    assert not purse(both.first).is_new
    assert purse(both.first).lent == 0


def test_what_is_taken_on_credit_during_a_call_is_told_by_the_next() -> None:
    both = Both(10_000)
    assert on_credit(both.first, 10)
    call = both.first.call(0.0)
    lacking = purse(both.first).free + 15
    assert on_credit(both.first, lacking, 0.0)
    both.first.apply(call, both.ledger.call(call, 0.0, NOON), 0.0)
    assert purse(both.first).lent == 15


def test_a_budget_is_whole_again_at_the_tenant_s_midnight_also_where_clocks_change() -> None:
    """The night to 25 October 2026 has 25 hours in Berlin: midnight is 22:00 UTC before, 23:00 after."""
    evening = 1_792_879_200.0 - 3600.0  # 24 October, 21:00 UTC
    table = LimitTable({})
    table.put([Limit(SCOPE, tokens_per_day=100, time_zone="Europe/Berlin")])
    ledger, book = Ledger(table, "owner", 0.0), Book("here", table)
    purse = book.purse(SCOPE, Bound.TOKENS_DAY, TENANT)

    def exchange(now: float) -> None:
        for _ in range(2):
            call = book.call(now)
            book.apply(call, ledger.call(call, now, evening + now), now)

    def admitted(now: float) -> bool:
        with book.waiting([(purse, 100)]):
            exchange(now)
        taken = book.take([(purse, 100)], now)
        for each in taken or []:
            book.settle(each, 100, now)
        exchange(now)
        return taken is not None

    hours = [hour for hour in range(30) if admitted(3600.0 * hour + 1.0)]
    assert hours == [0, 1, 26]
