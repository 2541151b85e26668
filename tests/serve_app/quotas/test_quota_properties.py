"""Several gateways, one ledger, and everything that gets lost between them."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.quotas.book import Book
from serve_app.quotas.ledger import Ledger, Total
from serve_app.quotas.limits import MONEY, NANO, Bound, Limit, LimitTable
from serve_app.quotas.purse import CREDIT_SHARE, Taken

SCOPE, TENANT = "tenant:acme", "acme"
NOON = 1_782_043_200.0  # 2026-06-21 12:00 UTC
STEP_S = 0.05
PERIOD_S = 0.25


@dataclass
class Running:
    taken: Taken
    ends: float
    uses: int


@dataclass
class SimulatedGateway:
    book: Book
    called: float = -1.0
    waiting: deque[int] = field(default_factory=deque)
    running: list[Running] = field(default_factory=list)


@dataclass
class World:
    """Time passes in steps; each gateway is offered requests that reserve more than they use."""

    bound: Bound
    limit: int
    gateways: int
    rng: random.Random
    loss: float = 0.0
    wall_step: float = 0.0
    now: float = 1000.0
    used: list[tuple[float, int]] = field(default_factory=list)
    lost: int = 0
    disk: tuple[dict[tuple[str, Bound, str], int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    names: int = 0

    def __post_init__(self) -> None:
        self.table = LimitTable({})
        unit = NANO if self.bound in MONEY else 1
        self.table.put([Limit(SCOPE, **{self.bound.value: self.limit / unit})])  # type: ignore[arg-type]
        self.epochs = 0
        self.ledger = self.new_ledger()
        self.members = [self.new_gateway() for _ in range(self.gateways)]

    def new_ledger(self) -> Ledger:
        self.epochs += 1
        ledger = Ledger(self.table, f"owner-{self.epochs}", self.now)
        totals, applied = self.disk
        ledger.restore([Total(*key, amount) for key, amount in totals.items()], dict(applied), self.now)
        return ledger

    def new_gateway(self) -> SimulatedGateway:
        self.names += 1
        return SimulatedGateway(Book(f"gateway-{self.names}", self.table))

    @property
    def unix(self) -> float:
        return NOON + self.now + self.wall_step

    def write(self) -> None:
        totals, applied = self.ledger.unwritten()
        for total in totals:
            self.disk[0][total.scope, total.bound, total.label] = total.amount
        self.disk[1].update(applied)
        self.ledger.written(applied)

    def kill_gateway(self) -> None:
        """What runs there has used all it will use, and the owner never learns of it."""
        index = self.rng.randrange(len(self.members))
        for purse in self.members[index].book._purses.values():
            self.lost += purse.free + purse.busy + sum(purse.unsent.values())
        self.lost += self.limit // CREDIT_SHARE  # the new one does not know yet what is left
        self.members[index] = self.new_gateway()

    def kill_owner(self) -> None:
        self.ledger = self.new_ledger()

    def exchange(self, each: SimulatedGateway) -> None:
        purse = each.book.purse(SCOPE, self.bound, TENANT)
        purse.waiting = list(each.waiting)
        call = each.book.call(self.now)
        each.called = self.now
        if self.rng.random() < self.loss:
            each.book.failed(call)
            return
        reply = self.ledger.call(call, self.now, self.unix)
        if self.rng.random() < self.loss:  # the connection broke, and its client asks again
            reply = self.ledger.call(call, self.now, self.unix)
        if self.rng.random() < self.loss:
            each.book.failed(call)
            return
        each.book.apply(call, reply, self.now)
        if reply.whole and self.rng.random() >= self.loss:
            self.exchange(each)

    def step(self, offered: int, reserve: int, uses: int, lasts_s: float) -> None:
        self.now += STEP_S
        for each in self.members:
            for run in [run for run in each.running if run.ends <= self.now]:
                each.book.settle(run.taken, run.uses, self.now)
                each.running.remove(run)
            each.waiting.extend([reserve] * offered)
            self.serve(each, uses, lasts_s)
            if self.now >= each.called + PERIOD_S:
                self.exchange(each)
            self.serve(each, uses, lasts_s)
            if each.waiting and not each.book.refused([(self.purse(each), each.waiting[0])], self.now):
                self.exchange(each)
                self.serve(each, uses, lasts_s)
            while len(each.waiting) > 2 * offered:
                each.waiting.popleft()  # refused
        self.write()

    def purse(self, each: SimulatedGateway):  # type: ignore[no-untyped-def]
        return each.book.purse(SCOPE, self.bound, TENANT)

    def serve(self, each: SimulatedGateway, uses: int, lasts_s: float) -> None:
        while each.waiting:
            parts = [(self.purse(each), each.waiting[0])]
            taken = each.book.take(parts, self.now) or each.book.take_on_credit(parts, self.now)
            if taken is None:
                return
            each.waiting.popleft()
            self.used.append((self.now, uses))
            if self.bound is Bound.REQUESTS:
                each.book.settle(taken[0], uses, self.now)
            else:
                each.running.append(Running(taken[0], self.now + lasts_s, uses))

    def most_in_a_minute(self) -> int:
        most, window, total = 0, deque[tuple[float, int]](), 0
        for at, amount in self.used:
            window.append((at, amount))
            total += amount
            while window[0][0] <= at - 60.0:
                total -= window.popleft()[1]
            most = max(most, total)
        return most


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.integers(40, 3000),
    gateways=st.integers(1, 5),
    offered=st.integers(1, 4),
    loss=st.sampled_from([0.0, 0.0, 0.05, 0.3]),
)
def test_no_sixty_seconds_admit_more_requests_than_the_limit(
    seed: int, limit: int, gateways: int, offered: int, loss: float
) -> None:
    world = World(Bound.REQUESTS, limit, gateways, random.Random(seed), loss)
    for _ in range(int(75 / STEP_S)):
        world.step(offered, 1, 1, 0.0)
    assert world.most_in_a_minute() <= limit
    demand = min(limit, int(50 / STEP_S) * offered * gateways)
    if loss < 0.1:
        assert world.most_in_a_minute() >= 0.99 * demand - gateways


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.integers(20_000, 300_000),
    gateways=st.integers(1, 5),
    loss=st.sampled_from([0.0, 0.0, 0.05, 0.3]),
    bound=st.sampled_from([Bound.TOKENS_DAY, Bound.MONEY_MONTH, Bound.TOKENS]),
)
def test_a_budget_is_used_up_and_not_exceeded(
    seed: int, limit: int, gateways: int, loss: float, bound: Bound
) -> None:
    rng = random.Random(seed)
    world = World(bound, limit, gateways, rng, loss)
    reserve, uses = limit // 150, limit // 400
    for _ in range(int(50 / STEP_S)):
        world.step(1, reserve, uses, 0.6)
    total = sum(amount for _, amount in world.used)
    assert total <= limit
    assert total >= 0.99 * limit


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    gateways=st.integers(2, 5),
    bound=st.sampled_from([Bound.TOKENS_DAY, Bound.REQUESTS]),
)
def test_kills_exceed_a_limit_by_what_the_dead_gateways_held_and_the_new_ones_took_on_credit(
    seed: int, gateways: int, bound: Bound
) -> None:
    rng = random.Random(seed)
    limit = 5000
    world = World(bound, limit, gateways, rng, loss=0.02)
    for number in range(int(58 / STEP_S)):
        world.step(1, 10 if bound is Bound.TOKENS_DAY else 1, 7 if bound is Bound.TOKENS_DAY else 1, 0.5)
        if number % 200 == 150:
            world.kill_gateway()
        if number % 300 == 250:
            world.kill_owner()
    assert sum(amount for _, amount in world.used) <= limit + world.lost


def test_a_new_owner_knows_the_last_minute_from_its_gateways() -> None:
    world = World(Bound.REQUESTS, 300, 3, random.Random(1))
    for _ in range(int(10 / STEP_S)):
        world.step(2, 1, 1, 0.0)
    assert len(world.used) == 300
    world.kill_owner()
    for _ in range(int(20 / STEP_S)):
        world.step(2, 1, 1, 0.0)
    assert len(world.used) == 300


@pytest.mark.parametrize("step_s", [-7200.0, -1.0, 1.0, 3600.0])
def test_a_step_of_the_wall_clock_gives_no_minute_and_no_day_twice(step_s: float) -> None:
    for bound in (Bound.REQUESTS, Bound.TOKENS_DAY):
        world = World(bound, 300, 2, random.Random(2))
        for number in range(int(30 / STEP_S)):
            if number == 100:
                world.wall_step = step_s
            world.step(2, 1, 1, 0.0)
        assert len(world.used) == 300, bound
