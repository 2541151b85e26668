"""Calls to the owner that come twice, or whose answers are lost."""

from __future__ import annotations

from serve_app.quotas.book import Book
from serve_app.quotas.ledger import Ledger
from serve_app.quotas.limits import Bound, Limit, LimitTable
from serve_app.quotas.messages import LeaseReply
from serve_app.quotas.purse import Purse

SCOPE, TENANT = "tenant:acme", "acme"
NOON = 1_782_043_200.0  # 2026-06-21 12:00 UTC


class Pair:
    """A ledger and one gateway's book, which know each other."""

    def __init__(self, **limits: int) -> None:
        self.table = LimitTable({})
        self.table.put([Limit(SCOPE, **limits)])
        self.now = 1000.0
        self.ledger = Ledger(self.table, "owner", self.now)
        self.book = Book("gateway", self.table)
        self.tell()

    def purse(self, bound: Bound) -> Purse:
        return self.book.purse(SCOPE, bound, TENANT)

    def tell(self, *, calls: int = 1) -> LeaseReply:
        """The answer to the last of them is the one that arrives."""
        call = self.book.call(self.now)
        for _ in range(calls):
            reply = self.ledger.call(call, self.now, NOON + self.now)
        self.book.apply(call, reply, self.now)
        return reply

    def held(self, bound: Bound) -> int:
        return self.ledger.used(SCOPE, TENANT, self.now, NOON + self.now)[bound][1]

    def used(self, bound: Bound) -> int:
        return self.ledger.used(SCOPE, TENANT, self.now, NOON + self.now)[bound][0]


def test_a_request_whose_call_came_twice_gets_its_part_from_the_next() -> None:
    pair = Pair(parallel_requests=4)
    purse = pair.purse(Bound.PARALLEL)
    with pair.book.waiting([(purse, 1)]):
        pair.tell(calls=2)
        assert pair.book.has_news
        pair.tell()
    assert pair.book.take([(purse, 1)], pair.now)
    pair.tell()
    assert pair.held(Bound.PARALLEL) == 1


def test_what_a_call_that_came_twice_was_granted_is_not_lost_to_the_limit() -> None:
    pair = Pair(parallel_requests=4)
    with pair.book.waiting([(pair.purse(Bound.PARALLEL), 1)]):
        call = pair.book.call(pair.now)
        for _ in range(2):
            reply = pair.ledger.call(call, pair.now, NOON + pair.now)
    assert pair.held(Bound.PARALLEL) == 1
    pair.book.apply(call, reply, pair.now)  # its client has left meanwhile
    pair.tell()
    assert pair.held(Bound.PARALLEL) == 0


def test_an_introduction_that_comes_twice_counts_the_last_minute_once() -> None:
    pair = Pair(requests_per_minute=100)
    pair.book.spend([(pair.purse(Bound.REQUESTS), 10)], pair.now)
    pair.tell()
    pair.ledger = Ledger(pair.table, "successor", pair.now)
    assert pair.tell().whole
    assert pair.tell(calls=2).whole
    pair.book.spend([(pair.purse(Bound.REQUESTS), 5)], pair.now)
    pair.tell()
    assert pair.used(Bound.REQUESTS) == 15


def test_a_gateway_that_has_forgotten_a_limit_says_so_when_others_need_it() -> None:
    pair = Pair(parallel_requests=4)
    with pair.book.waiting([(pair.purse(Bound.PARALLEL), 1)]):
        granted = pair.book.call(pair.now)
        pair.ledger.call(granted, pair.now, NOON + pair.now)  # the answer is lost
    forgetful = Book("gateway", pair.table)
    forgetful.epoch, forgetful._whole, forgetful._calls = "owner", False, granted.call
    pair.book = forgetful
    other = Book("other", pair.table)

    def wanted(amount: int) -> int:
        purse = other.purse(SCOPE, Bound.PARALLEL, TENANT)
        with other.waiting([(purse, amount)]):
            call = other.call(pair.now)
            other.apply(call, pair.ledger.call(call, pair.now, NOON + pair.now), pair.now)
        return purse.free

    assert wanted(4) == 0
    pair.tell()
    assert pair.book.has_news
    assert not pair.book.is_idle
    pair.tell()
    assert wanted(4) == 4
