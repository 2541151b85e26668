"""Tenants that wait share a model by tokens: simulations of scripted arrivals, without a clock."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.admission import NOTHING, FairQueues, Spent, reserved
from serve_app.admission.costs import CREDIT_REQUESTS, OUTPUT_COST, SLOT_COST_PER_S

TOKEN_S, PROMPT_TOKEN_S = 0.02, 0.0005


@dataclass(frozen=True)
class Job:
    tenant: str
    prompt: int
    output: int
    at: float = 0.0
    slots: int = 1
    idle_s: float = 0.0

    @property
    def lasts_s(self) -> float:
        return self.prompt * PROMPT_TOKEN_S + self.output * TOKEN_S + self.idle_s

    @property
    def cost(self) -> float:
        return Spent(self.prompt, self.slots * self.output, self.slots * self.lasts_s).cost


@dataclass
class Simulation:
    """One model with so many slots. ``cost``: what each tenant's finished requests cost; ``waited``: how long
    each of its requests waited, in order."""

    slots: int
    weights: dict[str, float] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.queues = FairQueues[Job](self.weights)
        self.free = self.slots
        self.running: list[tuple[float, int, Job, float]] = []
        self.cost: Counter[str] = Counter()
        self.waited: dict[str, list[float]] = {}
        self.began = 0
        self.seen: set[str] = set()

    def run(self, jobs: list[Job], until: float = float("inf")) -> None:
        """All of them; or what happens ``until`` then."""
        to_come = sorted(jobs, key=lambda job: job.at, reverse=True)
        while (to_come or self.running) and self.now <= until:
            if to_come and (not self.running or to_come[-1].at <= self.running[0][0]):
                job = to_come.pop()
                self.now = max(self.now, job.at)
                self.queues.came(job.tenant, self.now)
                self.seen.add(job.tenant)
                self.queues.enter(job.tenant, 5, job)
            else:
                self.now, _, job, charged = heapq.heappop(self.running)
                self.free += job.slots
                spent = Spent(job.prompt, job.slots * job.output, job.slots * job.lasts_s)
                self.queues.gave_back(job.tenant, job.slots, charged, spent)
                self.cost[job.tenant] += job.cost
            while self._give_one():
                pass
            self.check()

    def _give_one(self) -> bool:
        for queue in self.queues.turns():
            ticket = next(iter(queue))
            job = ticket.request
            if job.slots > self.free or not self._may_take(job):
                continue
            charged = self.queues.took(job.tenant, job.slots, self.now, job.prompt)
            self.queues.leave(job.tenant, ticket)
            self.free -= job.slots
            self.began += 1
            self.waited.setdefault(job.tenant, []).append(self.now - job.at)
            heapq.heappush(self.running, (self.now + job.lasts_s, self.began, job, charged))
            return True
        return False

    def _may_take(self, job: Job) -> bool:
        some = {"slots": self.slots, "free": self.free, "reserve": reserved(self.slots)}
        return self.queues.may_take(job.tenant, job.slots, **some)

    def check(self) -> None:
        """After each event."""


PROMPTER, WRITER = "prompter", "writer"


def backlog(tenant: str, count: int, prompt: int, output: int) -> list[Job]:
    return [Job(tenant, prompt, output) for _ in range(count)]


def test_who_sends_long_prompts_gets_fewer_slots_and_as_many_tokens() -> None:
    """By slots, the one with long prompts would get forty times the tokens of the other."""
    simulation = Simulation(16)
    simulation.run(backlog(PROMPTER, 400, 4000, 1) + backlog(WRITER, 400, 10, 500), until=150.0)
    assert simulation.queues.waits(PROMPTER)
    assert simulation.queues.waits(WRITER)
    assert simulation.cost[PROMPTER] == pytest.approx(simulation.cost[WRITER], rel=0.15)
    assert simulation.free == 0


def test_a_tenant_with_three_times_the_weight_gets_three_times_the_tokens() -> None:
    simulation = Simulation(8, weights={"big": 3.0})
    simulation.run(backlog("big", 700, 100, 50) + backlog("small", 700, 100, 50), until=80.0)
    assert simulation.cost["big"] == pytest.approx(3 * simulation.cost["small"], rel=0.1)


def test_a_tenant_that_asks_for_little_does_not_wait_behind_one_that_asks_for_much() -> None:
    noise = backlog("noisy", 400, 200, 100)
    quiet = [Job("quiet", 50, 50, at=1.0 + number / 3) for number in range(90)]
    simulation = Simulation(16)
    simulation.run(noise + quiet, until=30.0)
    assert max(simulation.waited["quiet"]) <= 2.1, "no longer than an answer: the noise came before it"
    assert max(simulation.waited["quiet"][10:]) == 0.0


@pytest.mark.parametrize("slots", [1, 4, 8])
def test_a_tenant_within_its_share_does_not_wait_though_the_slots_of_another_make_fewer_tokens(
    slots: int,
) -> None:
    """The quiet one has most of the tokens, and wants a few of the slots."""
    noise = [Job("noisy", 10, 1, slots=slots, idle_s=2.0) for _ in range(400)]
    quiet = [Job("quiet", 500, 75, at=3.0 + number / 3) for number in range(150)]
    simulation = Simulation(16)
    simulation.run(noise + quiet, until=50.0)
    assert simulation.queues.waits("noisy")
    assert simulation.cost["quiet"] > 1.5 * simulation.cost["noisy"]
    assert max(simulation.waited["quiet"]) <= 2.1, "no longer than an answer of the noise that came first"
    assert max(simulation.waited["quiet"][15:]) == 0.0, "what it wants is known by then"


def test_an_idle_hour_saves_up_no_more_than_the_credit() -> None:
    """Who comes back is not served alone until it has as much as the others."""
    simulation = Simulation(4)
    simulation.run([Job("idle", 10, 10), *backlog("busy", 4000, 100, 50)], until=600.0)
    before = dict(simulation.cost)
    simulation.run([Job("idle", 100, 50, at=simulation.now) for _ in range(600)], until=simulation.now + 60)
    got = {name: simulation.cost[name] - before[name] for name in ("idle", "busy")}
    assert got["idle"] <= got["busy"] + 3 * CREDIT_REQUESTS * 200
    assert got["busy"] == pytest.approx(got["idle"], rel=0.35)


def test_what_was_estimated_too_high_is_given_back() -> None:
    queues = FairQueues[str]()
    for _ in range(20):
        charged = queues.took("a", 1, 0.0, 10.0)
        queues.gave_back("a", 1, charged, Spent(10.0, 500.0))
    learned = queues.took("a", 1, 0.0, 10.0)
    assert learned == pytest.approx(10 + OUTPUT_COST * 500)
    before = queues.counter("a")
    queues.gave_back("a", 1, learned, Spent(10.0, 1.0))
    assert queues.counter("a") == pytest.approx(before - OUTPUT_COST * 499)
    charged = queues.took("a", 1, 0.0, 10.0)
    before = queues.counter("a")
    queues.gave_back("a", 1, charged, NOTHING)
    assert queues.counter("a") == pytest.approx(before - charged)


def test_a_slot_that_makes_no_tokens_costs_its_time() -> None:
    assert Spent(5.0, 1.0, 60.0).cost == 60 * SLOT_COST_PER_S
    assert Spent(5.0, 1000.0, 60.0).cost == 5 + OUTPUT_COST * 1000


def test_a_tenant_that_is_new_is_expected_to_write_what_the_others_do() -> None:
    queues = FairQueues[str]()
    queues.gave_back("a", 1, queues.took("a", 1, 0.0, 10.0), Spent(10.0, 80.0))
    assert queues.took("new", 2, 0.0, 10.0) == pytest.approx(10 + OUTPUT_COST * 160)


def test_what_a_tenant_held_is_not_forgotten_from_one_moment_to_the_next() -> None:
    """A burst of the last minute is expected again, also when a new minute has just begun."""
    queues = FairQueues[str]()
    for name in ("noisy", "quiet"):
        queues.came(name, 0.0)
    queues.took("quiet", 1, 0.0)
    queues.took("quiet", 5, 50.0)
    queues.gave_back("quiet", 6)
    queues.took("noisy", 8, 55.0)
    queues.took("quiet", 1, 61.0)
    assert not queues.may_take("noisy", 2, slots=16, free=7, reserve=2)
    assert queues.may_take("noisy", 1, slots=16, free=7, reserve=2)


def test_few_slots_are_kept_for_a_hundred_tenants_that_were_never_here_together() -> None:
    queues = FairQueues[str]()
    for number in range(100):
        queues.came(f"t{number}", number / 10)
        queues.took(f"t{number}", 1, number / 10)
        if number >= 3:
            queues.gave_back(f"t{number - 3}", 1)
    assert not queues.may_take("t99", 1, slots=16, free=2, reserve=2)
    assert queues.may_take("t99", 1, slots=16, free=3, reserve=2)


# ---- whatever comes ----

JOBS = st.builds(
    Job,
    tenant=st.sampled_from(["a", "b", "c", "d"]),
    prompt=st.integers(1, 5000),
    output=st.integers(1, 600),
    at=st.floats(0, 30),
    slots=st.sampled_from([1, 1, 1, 1, 2, 4]),
)


class Conserving(Simulation):
    """No slot is free that a request of one sequence may take, and nothing is counted wrongly."""

    def check(self) -> None:
        held = sum(self.queues.held(name) for name in "abcd")
        assert held == self.slots - self.free == sum(run[2].slots for run in self.running)
        waiting = [next(iter(queue)).request for queue in self.queues.turns()]
        if {job.tenant for job in waiting} == self.seen:
            light = waiting and all(job.slots == 1 for job in waiting)  # for a heavy one slots are kept
            assert not (light and self.free), "all wait, and a slot is free"
        assert not waiting or self.running, "somebody waits though nothing runs"
        assert len(self.queues) == sum(1 for _ in self.queues)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(jobs=st.lists(JOBS, min_size=1, max_size=120), slots=st.sampled_from([8, 16]))
def test_nobody_starves_and_no_slot_is_idle_while_all_wait(jobs: list[Job], slots: int) -> None:
    simulation = Conserving(slots)
    simulation.run(jobs)
    assert sum(map(len, simulation.waited.values())) == len(jobs)
    assert (len(simulation.queues), simulation.free) == (0, slots)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    a=st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 600)), min_size=1, max_size=8),
    b=st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 600)), min_size=1, max_size=8),
    weight=st.sampled_from([0.5, 1.0, 2.0, 5.0]),
    slots=st.sampled_from([1, 4, 16]),
)
def test_two_tenants_that_always_wait_differ_by_a_bounded_number_of_tokens(
    a: list[tuple[int, int]], b: list[tuple[int, int]], weight: float, slots: int
) -> None:
    """However long they wait: the credit, and what is under way."""
    jobs = {"a": [Job("a", *sizes) for sizes in a], "b": [Job("b", *sizes) for sizes in b]}
    largest = max(job.cost for each in jobs.values() for job in each)
    bound = (CREDIT_REQUESTS + 2 + 2 * slots) * largest / min(1.0, weight)

    class Bounded(Simulation):
        def check(self) -> None:
            if self.queues.waits("a") and self.queues.waits("b"):
                assert abs(self.cost["a"] / weight - self.cost["b"]) <= bound
                assert self.free == 0

    simulation = Bounded(slots, weights={"a": weight})
    simulation.run([job for each in jobs.values() for job in each * 40], until=2000.0)
    assert simulation.began > 0
