"""Decisions: what an entry's own evidence, everybody's and the budget make of a score."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from random import Random
from time import perf_counter
from uuid import UUID

import pytest

from serve_app.cache.bound import (
    Decision,
    EntryEvidence,
    ErrorBudget,
    LearnedBound,
    Observation,
    PopulationEvidence,
    feedback,
    reuse_policy,
    upper_bound,
)
from serve_app.cache.bound.budget import MOST_DOUBT
from serve_app.cache.bound.population import EDGES, wilson_lower, wilson_upper, without_noise

PAIR = UUID(int=1), "how far is the moon"
NEW = EntryEvidence()
SCORES = [step / 50 for step in range(51)]


def evidence_of(*seen: tuple[float, bool]) -> EntryEvidence:
    evidence = EntryEvidence()
    for score, right in seen:
        evidence = evidence.with_observation(Observation(score, right))
    return evidence


def random_evidence(random: Random, count: int) -> EntryEvidence:
    return evidence_of(*((random.random(), random.random() < 0.8) for _ in range(count)))


def trained(rate: float = 0.02, seed: int = 1, count: int = 4000) -> LearnedBound:
    """A bound that has seen many entries; an answer is wrong with probability (1 - score)²."""
    random, bound = Random(seed), LearnedBound(rate)
    for _ in range(count):
        score = random.random()
        bound.learn(NEW, score, random.random() >= (1 - score) ** 2)
    return bound


@pytest.mark.parametrize(("wrong", "count"), [(0, 1), (0, 50), (1, 50), (5, 100), (30, 100), (0.5, 3.7)])
def test_an_interval_holds_the_share_itself(wrong: float, count: float) -> None:
    assert 0 <= wilson_lower(wrong, count) <= wrong / count < wilson_upper(wrong, count) <= 1


def test_an_interval_of_nothing_is_everything() -> None:
    assert (wilson_lower(0, 0), wilson_upper(0, 0)) == (0, 1)


def test_the_upper_end_covers_the_truth_about_as_often_as_it_says() -> None:
    random, covered = Random(5), 0
    for _ in range(2000):
        wrong = sum(random.random() < 0.05 for _ in range(100))
        covered += wilson_upper(wrong, 100) >= 0.05
    assert covered / 2000 > 0.86


def test_noise_is_taken_off_a_share() -> None:
    assert without_noise(0.05 + 0.95 * 0.1, 0.05) == pytest.approx(0.1)
    assert without_noise(0.02, 0.05) == 0
    assert without_noise(1.0, 1.0) == 1


def test_nothing_is_reused_before_anything_is_known() -> None:
    decision = LearnedBound(0.05).decide(NEW, 0.999, 0.5)
    assert decision == Decision(False, True, 1.0, "bound")


def test_a_clean_record_is_needed_before_the_first_reuse() -> None:
    bound, needed = LearnedBound(0.02), 0
    while not bound.decide(NEW, 0.99, 0.99).reuse:
        bound.learn(NEW, 0.99, True)
        needed += 1
    assert 20 <= needed <= 60


def test_the_population_knows_where_answers_are_wrong() -> None:
    population = trained().population
    assert population.error(0.1) > 0.5
    assert population.error(0.98) < 0.02
    limit = min(score for score in (0.0, *EDGES) if population.error(score) <= 0.05)
    assert 0.7 < limit < 0.95


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_never_rises_with_the_score(seed: int) -> None:
    random = Random(seed)
    population = trained(seed=seed, count=random.randrange(1500)).population
    for _ in range(random.randrange(100)):
        population.observe_repeat(random.random() < 0.95)
    evidence = feedback(random_evidence(random, 20), random.random(), right=False)
    bounds = [upper_bound(evidence, population, score) for score in SCORES]
    assert all(lower >= higher - 1e-12 for lower, higher in pairwise(bounds))
    assert all(0 <= bound <= 1 for bound in bounds)


@pytest.mark.parametrize("score", [math.nan, -1.0, -math.inf, 0.0])
def test_a_score_that_says_nothing_is_never_reused(score: float) -> None:
    assert not trained().decide(NEW, score, 0.99).reuse


@pytest.mark.parametrize("score", [1.0, 1.5, math.inf])
def test_a_score_beyond_the_scale_is_the_highest(score: float) -> None:
    assert trained().decide(NEW, score, 0.99).bound == trained().decide(NEW, 0.99999, 0.99).bound


def test_wrong_observations_raise_an_entrys_bound_and_right_ones_lower_it() -> None:
    population = trained().population
    bounds = [
        upper_bound(evidence_of(*((0.8, right) for right in seen)), population, 0.8)
        for seen in ([False] * 3, [False], [], [True] * 10, [True] * 30)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert len(set(bounds)) == 5


def test_a_wrong_answer_where_it_was_to_be_expected_says_less_of_an_entry() -> None:
    population = trained().population
    expected = upper_bound(evidence_of((0.1, False)), population, 0.9)
    surprising = upper_bound(evidence_of((0.95, False)), population, 0.9)
    assert expected < surprising


def test_entries_that_differ_are_told_from_entries_that_do_not() -> None:
    def concentration(shares: tuple[float, float]) -> float:
        random, bound = Random(2), LearnedBound(0.02)
        entries = [NEW] * 100
        for number in range(4000):
            index = number % 100
            right = random.random() >= shares[index % 2]
            entries[index] = bound.learn(entries[index], 0.8, right)
        return bound.population.concentration

    assert concentration((0.0, 0.3)) < 3
    assert concentration((0.15, 0.15)) > 8


def test_an_audit_is_drawn_and_asks_the_engine() -> None:
    bound = trained()
    assert bound.decide(NEW, 0.99, 0.0).reason == "audit"
    assert bound.decide(NEW, 0.99, 0.0).explore
    assert bound.decide(NEW, 0.99, 0.21) == Decision(True, False, bound.population.error(0.99), "reuse")


def test_where_most_is_wrong_only_a_sample_is_compared() -> None:
    bound = LearnedBound(0.02)
    for _ in range(100):
        bound.learn(NEW, 0.05, False)
    assert bound.decide(NEW, 0.05, 0.1).explore
    assert not bound.decide(NEW, 0.05, 0.3).explore


def test_a_decision_changes_nothing() -> None:
    bound = trained()
    before = bound.to_dict()
    for score in SCORES:
        bound.decide(NEW, score, 0.01, PAIR)
    assert bound.to_dict() == before


def test_a_report_of_a_wrong_answer_blocks_the_pair_at_once_and_the_entry_below() -> None:
    bound = trained()
    left = bound.budget.left
    assert bound.decide(NEW, 0.99, 0.9, PAIR).reuse
    evidence = bound.report(NEW, 0.99, False, PAIR)
    assert bound.decide(evidence, 0.999, 0.9, PAIR) == Decision(False, False, 1.0, "blocked")
    assert bound.decide(evidence, 0.98, 0.9, (PAIR[0], "another text")).reason == "bound"
    assert bound.budget.left == left - 1


def test_an_entry_that_was_reported_earns_its_trust_back() -> None:
    bound = trained()
    evidence = bound.report(NEW, 0.98, False, PAIR)
    for _ in range(32):
        evidence = bound.learn(evidence, 0.98, True)
    assert bound.decide(evidence, 0.98, 0.9, (PAIR[0], "another text")).reuse
    assert not bound.decide(evidence, 0.98, 0.9, PAIR).reuse


def test_a_report_that_the_answer_was_right_lifts_the_block() -> None:
    bound = trained(rate=0.1)
    bound.report(NEW, 0.99, False, PAIR)
    bound.report(NEW, 0.99, True, PAIR)
    assert bound.decide(NEW, 0.99, 0.9, PAIR).reuse


def test_repeats_teach_how_noisy_the_comparison_is() -> None:
    population = PopulationEvidence()
    assert population.false_alarm == 0
    for number in range(500):
        population.observe_repeat(number % 20 != 0)
    assert 0.03 < population.false_alarm < 0.05


def test_reuses_better_than_the_rate_loosen_the_limit_and_worse_ones_tighten_it() -> None:
    budget = ErrorBudget(0.02)
    assert budget.limit() == pytest.approx(0.02)
    for _ in range(60):
        budget.reused(0.001)
    loose = budget.limit()
    assert 0.02 < loose <= MOST_DOUBT
    for _ in range(20):
        budget.reused(0.1)
    assert budget.limit() < 0.02 < loose


def test_audits_that_find_errors_tighten_the_limit_and_clean_ones_loosen_it() -> None:
    clean, bad = ErrorBudget(0.02), ErrorBudget(0.02)
    for number in range(60):
        clean.observe(0.02, True)
        bad.observe(0.02, number % 10 > 0)
    assert bad.limit() < 0.02 < clean.limit()


def test_debts_and_surprises_fade_where_nothing_is_reused_any_more() -> None:
    budget = ErrorBudget(0.02)
    for _ in range(20):
        budget.reported_wrong()
        budget.observe(0.01, False)
    shut = budget.limit()
    for _ in range(6000):
        budget.idle()
    assert shut < 0.001
    assert budget.limit() > 0.015


def test_noise_alone_is_no_error_of_the_reuses() -> None:
    budget = ErrorBudget(0.02)
    for number in range(100):
        budget.observe(0.01, number % 20 != 0, false_alarm=0.05)
    assert budget.calibration <= 1


def test_audits_become_rarer_with_their_number_and_come_back_with_a_surprise() -> None:
    budget, shares = ErrorBudget(0.02), []
    for _ in range(1200):
        budget.observe(0.01, True)
        shares.append(budget.audit_share)
    assert (shares[0], shares[-1]) == (0.1, 0.01)
    for _ in range(4):
        budget.observe(0.01, False)
    assert budget.audit_share == 0.05


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, math.nan])
def test_a_rate_that_makes_no_sense_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="max_error_rate"):
        LearnedBound(rate)


def test_its_state_goes_through_json() -> None:
    bound = trained()
    bound.report(NEW, 0.9, False, PAIR)
    bound.population.observe_repeat(True)
    bound.budget.observe(0.01, True)
    text = json.dumps(bound.to_dict())
    again = LearnedBound.from_dict(0.02, json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert again.blocked.is_blocked(*PAIR)
    assert again.population.error(0.9) == pytest.approx(bound.population.error(0.9), abs=1e-3)


@pytest.mark.parametrize("data", [{}, {"population": {}, "budget": {}, "blocked": []}, None, [], {"seen": 1}])
def test_a_state_that_is_none_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not a"):
        LearnedBound.from_dict(0.02, data)  # type: ignore[arg-type]


def test_populations_and_budgets_gathered_apart_add_up() -> None:
    one, two, both = PopulationEvidence(), PopulationEvidence(), PopulationEvidence()
    for number in range(40):
        for population in (one if number % 2 else two, both):
            population.observe(0.9, number % 5 > 0, NEW)
    merged = one.merged(two)
    assert merged.count(0.9) == pytest.approx(both.count(0.9), rel=0.1)
    assert merged.error(0.9) == pytest.approx(both.error(0.9), rel=0.1)
    budget = ErrorBudget(0.02, 0.1, 3, 1, 2).merged(ErrorBudget(0.02, 0.2, 4, 0, 1))
    assert (budget.audits, budget.audited_wrong, budget.audited_bound) == (7, 1, 3)
    assert budget.left == pytest.approx(0.3)


def test_a_decision_costs_less_than_50_microseconds() -> None:
    bound, evidence = trained(), random_evidence(Random(1), 32)
    rounds = []
    for _ in range(20):
        start = perf_counter()
        for score in SCORES:
            bound.decide(evidence, score, 0.5, PAIR)
        rounds.append((perf_counter() - start) / len(SCORES))
    assert min(rounds) < 50e-6


RECORD = ((0.905, 175.0, 5.2), (0.9475, 332.0, 1.3))
"""Of a verifier: in each range of scores, hits and wrong ones among them."""


def test_with_a_verifiers_record_a_sure_entry_answers_before_anything_was_seen() -> None:
    policy = reuse_policy(0.02, record=RECORD)
    assert policy.decide(NEW, 0.97, 0.9).reuse
    assert policy.decide(NEW, 0.91, 0.9) == Decision(False, True, pytest.approx(0.057, abs=0.02), "bound")
    assert not reuse_policy(0.005, record=RECORD).decide(NEW, 0.97, 0.9).reuse


def test_a_record_gives_way_to_what_is_seen() -> None:
    policy = reuse_policy(0.02, record=RECORD)
    for number in range(200):
        policy.learn(NEW, 0.97, right=number % 5 > 0)
    assert not policy.decide(NEW, 0.97, 0.9).reuse


def test_what_was_saved_goes_before_a_record() -> None:
    bound = LearnedBound(0.02)
    for _ in range(50):
        bound.learn(NEW, 0.97, right=False)
    assert not reuse_policy(0.02, bound.to_dict(), RECORD).decide(NEW, 0.97, 0.9).reuse
    assert reuse_policy(0.02, {"blocked": []}, RECORD).decide(NEW, 0.97, 0.9).reuse


def test_without_a_rate_everything_is_reused_but_for_blocked_pairs() -> None:
    policy = reuse_policy(None)
    assert not policy.learns
    assert policy.decide(NEW, 0.1, 0.0, PAIR).reuse
    policy.report(NEW, 0.1, False, PAIR)
    assert policy.decide(NEW, 0.1, 0.0, PAIR).reason == "blocked"
    again = reuse_policy(None, policy.to_dict() | {"population": {"kept": 1}})
    assert again.decide(NEW, 0.1, 0.0, PAIR).reason == "blocked"
    assert again.to_dict()["population"] == {"kept": 1}
