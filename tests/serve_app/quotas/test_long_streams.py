"""Requests that last for so long that nothing is held for them any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.quotas.book import Book
from serve_app.quotas.ledger import Ledger
from serve_app.quotas.limits import Bound, Limit, LimitTable
from serve_app.quotas.purse import Taken

SCOPE, TENANT, KEY = "tenant:acme", "acme", ("tenant:acme", Bound.TOKENS)
NOON = 1_782_043_200.0  # 2026-06-21 12:00 UTC
LIMIT = 1000


@dataclass
class Pair:
    """A ledger and one gateway's book, which know each other."""

    now: float = 1000.0
    table: LimitTable = field(default_factory=lambda: LimitTable({}))

    def __post_init__(self) -> None:
        self.table.put([Limit(SCOPE, tokens_per_minute=LIMIT)])
        self.ledger = Ledger(self.table, "owner", self.now)
        self.book = Book("gateway", self.table)
        self.tell()

    def tell(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(2):
            call = self.book.call(self.now)
            reply = self.ledger.call(call, self.now, NOON + self.now)
            self.book.apply(call, reply, self.now)
            if not reply.whole:
                return

    def begin(self, amount: int) -> Taken | None:
        purse = self.book.purse(*KEY, TENANT)
        with self.book.waiting([(purse, amount)]):
            self.tell()
        taken = self.book.take([(purse, amount)], self.now)
        self.tell()
        return taken[0] if taken else None

    def state(self) -> tuple[int, int]:
        """What was used in the last minute, and what is held."""
        return self.ledger.used(SCOPE, TENANT, self.now, NOON + self.now)[Bound.TOKENS]


def begun_long_ago(pair: Pair) -> Taken:
    taken = pair.begin(500)
    assert taken is not None
    for _ in range(120):
        pair.tell(1.0)
    assert pair.state() == (0, 0)
    return taken


def test_the_end_of_a_long_stream_gives_nothing_back_that_others_have_reserved() -> None:
    pair = Pair()
    long = begun_long_ago(pair)
    assert pair.begin(900)
    pair.book.settle(long, 200, pair.now)
    pair.tell(0.25)
    used, held = pair.state()
    assert used > 0
    assert held >= 900


def test_what_a_long_stream_used_is_in_the_report_to_a_new_owner() -> None:
    pair = Pair()
    long = begun_long_ago(pair)
    pair.book.settle(long, 200, pair.now)
    for _ in range(40):  # ten seconds, in which the gateway forgets what it has no use for
        pair.tell(0.25)
    pair.ledger = Ledger(pair.table, "successor", pair.now)
    pair.tell(0.25)
    used, _ = pair.state()
    assert used == 100, "one minute's part of it"


@settings(max_examples=40, deadline=None)
@given(
    runs=st.lists(
        st.tuples(st.integers(0, 200), st.integers(1, 150), st.integers(0, 300)), min_size=1, max_size=12
    ),
    restarts=st.sets(st.integers(0, 350), max_size=3),
)
def test_the_owner_knows_what_is_held_however_long_requests_run(
    runs: list[tuple[int, int, int]], restarts: set[int]
) -> None:
    """Each begins at a second, lasts for some, and reserves so much."""
    pair = Pair()
    running: list[tuple[int, int, Taken]] = []
    for second in range(360):
        if second in restarts:
            pair.ledger = Ledger(pair.table, f"successor-{second}", pair.now)
        for begins, lasts_s, amount in runs:
            if begins == second:
                taken = pair.begin(amount)
                if taken is not None:
                    running.append((begins + lasts_s, amount, taken))
        for _, amount, taken in (run for run in running if run[0] == second):
            pair.book.settle(taken, amount // 2, pair.now)
        pair.tell()
        busy = sum(each.amount for _, _, each in running if not each.is_over and not each.is_late)
        _, held = pair.state()
        assert busy <= held <= LIMIT  # what a long one used at last counts on top
        pair.now += 1.0
