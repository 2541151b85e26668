"""Speculation never costs more than it gains: the guard against a simulated engine.

The simulated engine accepts each drafted token with a fixed probability and takes 1 + tokens / knee a step.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from serve_app.speculation import (
    Depths,
    Drafting,
    GuardPolicy,
    GuardState,
    StepCost,
    StepTimes,
    Window,
    at_depth,
    begin,
    decide,
    drafts,
    expected,
    nothing,
)

MOST = 4
JUDGED, SEEN = GuardPolicy(MOST), GuardPolicy.with_hindsight(MOST)
"""Drafts that are known by being checked, and drafts that are compared with the text."""

both_policies = pytest.mark.parametrize("policy", [JUDGED, SEEN], ids=["judged", "hindsight"])


def expected_tokens(acceptance: float, depth: int) -> float:
    """Equation 1 of Leviathan et al."""
    return sum(acceptance**place for place in range(depth + 1))


@dataclass
class Engine:
    """Time is in units of reading the weights once. ``whole``: a draft holds whole or not at all."""

    acceptance: float
    knee: float
    batch: int = 1
    coverage: float = 1.0
    whole: bool = False
    choose: random.Random = field(default_factory=lambda: random.Random(7))

    def step(self) -> Counter[tuple[int, int]]:
        """Drafts of the full depth, and how much of them would hold."""
        made = sum(self.choose.random() < self.coverage for _ in range(self.batch))
        return Counter((MOST, self._held()) for _ in range(made))

    def _held(self) -> int:
        if self.whole:
            return MOST if self.choose.random() < self.acceptance else 0
        count = 0
        while count < MOST and self.choose.random() < self.acceptance:
            count += 1
        return count

    def without(self) -> float:
        """Seconds a token and request without speculation."""
        return 1 + self.batch / self.knee

    def at(self, depth: int) -> float:
        """Seconds a token and request at a fixed depth, expected."""
        each = depth * self.acceptance if self.whole else expected_tokens(self.acceptance, depth) - 1
        tokens = 1 + self.coverage * each
        return (1 + self.batch * (1 + self.coverage * depth) / self.knee) / tokens

    def best(self) -> float:
        return min(self.at(depth) for depth in range(MOST + 1))


@dataclass
class Run:
    """A guarded engine: state, what it measured, and what it gave."""

    policy: GuardPolicy
    state: GuardState
    times: StepTimes = field(default_factory=StepTimes)
    depths: list[int] = field(default_factory=list)
    tries: list[bool] = field(default_factory=list)

    def windows(self, engine: Engine, count: int) -> float:
        """Seconds a token and request over these windows."""
        seconds = tokens = 0.0
        for _ in range(count):
            self.depths.append(self.state.depth)
            self.tries.append(self.state.tries)
            found: Counter[tuple[int, int]] = Counter()
            for _ in range(self.policy.window_steps):
                made = engine.step()
                checked = at_depth(self.state.depth, made)
                took = 1 + (engine.batch + checked.drafted) / engine.knee
                self.times.observe(int(engine.batch + checked.drafted), took)
                found += made
                seconds += took
                tokens += 1 + checked.accepted / engine.batch
            self._decide(engine, found)
        return seconds / tokens

    def _decide(self, engine: Engine, found: Counter[tuple[int, int]]) -> None:
        steps = self.policy.window_steps
        requests = steps * engine.batch
        known = drafts(self.policy, self.state)
        depths = tuple(
            at_depth(depth, found, requests - found.total()) if depth <= known else Drafting()
            for depth in range(1, MOST + 1)
        )
        cost = StepCost(knee_tokens=self.times.knee_tokens or 256.0)
        self.state = decide(self.policy, self.state, Window(steps, requests, depths), cost)


def guarded(policy: GuardPolicy = JUDGED) -> Run:
    return Run(policy, begin(policy))


@both_policies
@pytest.mark.parametrize("coverage", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("acceptance", [0.0, 0.1, 0.3])
def test_text_that_cannot_be_drafted_costs_at_most_three_percent(
    policy: GuardPolicy, acceptance: float, coverage: float
) -> None:
    engine = Engine(acceptance, knee=4, coverage=coverage)
    assert guarded(policy).windows(engine, 400) <= 1.03 * engine.without()


@both_policies
def test_plain_speculation_loses_where_the_guard_does_not(policy: GuardPolicy) -> None:
    engine = Engine(0.1, knee=4)
    assert engine.at(MOST) > 1.5 * engine.without()
    assert guarded(policy).windows(engine, 400) <= 1.03 * engine.without()


@both_policies
@pytest.mark.parametrize("knee", [8.0, 64.0])
@pytest.mark.parametrize("acceptance", [0.7, 0.9])
@pytest.mark.parametrize("coverage", [0.4, 1.0])
def test_text_that_can_be_drafted_gets_nearly_what_the_best_depth_gives(
    policy: GuardPolicy, acceptance: float, knee: float, coverage: float
) -> None:
    engine = Engine(acceptance, knee=knee, coverage=coverage)
    assert guarded(policy).windows(engine, 200) <= 1.05 * engine.best()


@pytest.mark.parametrize("knee", [8.0, 17.0])
@pytest.mark.parametrize("coverage", [0.5, 1.0])
def test_drafts_that_hold_whole_or_not_at_all_get_the_full_depth(knee: float, coverage: float) -> None:
    """The first token of such a draft says nothing of the others: only hindsight knows."""
    engine = Engine(0.35, knee=knee, coverage=coverage, whole=True)
    assert engine.best() == engine.at(MOST)
    assert guarded(SEEN).windows(engine, 200) <= 1.03 * engine.best()


@both_policies
def test_a_full_batch_turns_it_off_and_a_quiet_hour_on_again_without_a_try(policy: GuardPolicy) -> None:
    run, quiet = guarded(policy), Engine(0.6, knee=64)
    run.windows(quiet, 20)
    assert run.state.depth > 0
    busy = replace(quiet, batch=512)
    run.windows(busy, 6)
    assert run.state.depth == 0
    run.windows(quiet, 2)
    assert run.state.depth > 0
    assert not run.state.tries


@both_policies
def test_between_quiet_and_full_the_depth_falls_with_the_load(policy: GuardPolicy) -> None:
    depths = []
    for batch in (1, 32, 96, 1024):
        run = guarded(policy)
        run.windows(Engine(0.7, knee=128, batch=batch), 12)
        depths.append(run.state.depth)
    assert depths == sorted(depths, reverse=True)
    assert depths[0] == MOST
    assert depths[-1] == 0


@both_policies
def test_text_that_changes_is_noticed_by_a_try(policy: GuardPolicy) -> None:
    run, engine = guarded(policy), Engine(0.02, knee=4)
    run.windows(engine, 12)
    assert run.state.depth == 0
    engine.acceptance = 0.95
    run.windows(engine, policy.longest_pause + 4)
    assert run.state.depth >= 2


def test_pauses_between_tries_double_up_to_a_bound() -> None:
    run = guarded()
    run.windows(Engine(0.0, knee=4), 400)
    gaps = _gaps_of(run.tries)
    assert gaps[:4] == [9, 17, 33, 65]
    assert set(gaps[4:]) == {65}
    assert {depth for depth, is_try in zip(run.depths, run.tries, strict=True) if is_try} == {1}


def test_a_look_checks_nothing_and_comes_more_often() -> None:
    run = guarded(SEEN)
    run.windows(Engine(0.0, knee=4), 60)
    gaps = _gaps_of(run.tries)
    assert gaps[:3] == [3, 5, 9]
    assert set(gaps[3:]) == {9}
    assert set(run.depths) == {0}


def _gaps_of(tries: list[bool]) -> list[int]:
    numbers = [number for number, is_try in enumerate(tries) if is_try]
    return [later - earlier for earlier, later in pairwise(numbers)]


def at_full_depth(policy: GuardPolicy = JUDGED) -> GuardState:
    return GuardState(policy.most, nothing(policy.most), next_pause=4)


def seen(found: dict[tuple[int, int], int], without: int = 0) -> Depths:
    return tuple(at_depth(depth, found, without) for depth in range(1, MOST + 1))


def test_few_steps_decide_nothing() -> None:
    window = Window(32, 32, seen({(4, 0): 3}))
    state = decide(JUDGED, at_full_depth(), window, StepCost(knee_tokens=2))
    assert state.depth == MOST
    assert "too few" in state.reason


def test_a_small_difference_does_not_move_the_depth() -> None:
    """Depth 3 and 4 are within two percent here."""
    run, engine = guarded(), Engine(0.66, knee=10.0)
    assert engine.at(3) == pytest.approx(engine.at(4), rel=0.02)
    run.windows(engine, 60)
    assert sum(a != b for a, b in pairwise(run.depths)) <= 4


def test_a_draft_model_that_is_too_slow_is_turned_off() -> None:
    window = Window(32, 32, seen({(4, 2): 16, (4, 0): 16}))
    cheap = decide(JUDGED, at_full_depth(), window, StepCost(draft=0.05))
    slow = decide(JUDGED, at_full_depth(), window, StepCost(draft=0.9))
    assert (cheap.depth, slow.depth) == (2, 0)
    assert slow.reason.endswith("off for 4 windows")
    assert slow.speed_up == 1.0


@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("known", [1, 2, 3])
def test_deeper_than_was_looked_each_token_holds_as_those_before_it(acceptance: float, known: int) -> None:
    engine = Engine(acceptance, knee=8.0)
    found = sum((engine.step() for _ in range(20_000)), Counter[tuple[int, int]]())
    evidence = tuple(at_depth(depth, found) if depth <= known else Drafting() for depth in range(1, MOST + 1))
    drafted, accepted = expected(evidence, MOST)
    assert drafted == MOST
    assert 1 + accepted == pytest.approx(expected_tokens(acceptance, MOST), rel=0.03)


@pytest.mark.parametrize(("held", "accepted"), [(0, 0.0), (1, 4.0)])
def test_what_never_or_always_holds_goes_on_so(held: int, accepted: float) -> None:
    evidence = (Drafting(8, 8, 8 * held), *nothing(MOST - 1))
    assert expected(evidence, MOST) == (4.0, accepted)


def test_where_nothing_was_drafted_nothing_is_expected() -> None:
    assert expected((Drafting(8, 0, 0), *nothing(MOST - 1)), MOST) == (0.0, 0.0)


def test_short_answers_are_known_from_several_windows() -> None:
    """A window of short answers has few steps whose drafts are known."""
    state = begin(SEEN)
    for _ in range(3):
        assert state.tries
        state = decide(SEEN, state, Window(32, 32, seen({(4, 4): 6})), StepCost())
    assert state.depth == MOST


def test_a_window_that_contradicts_what_was_known_replaces_it() -> None:
    state = decide(SEEN, at_full_depth(SEEN), Window(32, 32, seen({(4, 4): 32})), StepCost())
    assert state.depth == MOST
    refused = Window(32, 32, seen({(4, 0): 32}))
    assert decide(SEEN, state, refused, StepCost(knee_tokens=8.0)).depth == 0


def test_a_reason_says_what_was_measured() -> None:
    window = Window(32, 64, seen({(4, 3): 32}, without=32))
    state = decide(JUDGED, at_full_depth(), window, StepCost())
    assert state.reason.startswith("1.50 of 2.00 drafted tokens hold in a step at batch 2.0: ")
