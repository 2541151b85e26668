"""Over whole streams the share of wrong answers keeps its limit, and most hits stay where scores separate."""

from __future__ import annotations

import json
from random import Random

import pytest
from bound_streams import FAIR, GOOD, HOPELESS, STRONG, Outcome, Stream, requests_of, run, run_all

from serve_app.cache.bound import EntryEvidence, LearnedBound

SEEDS = range(3)


def worst_false_share(outcomes: list[Outcome]) -> float:
    return max(outcome.false_share for outcome in outcomes)


@pytest.mark.parametrize(
    ("stream", "rate", "most_kept"),
    [
        (Stream(STRONG), 0.02, 0.8),
        (Stream(GOOD, negatives=0.05), 0.02, 0.8),
        (Stream(GOOD), 0.05, 0.8),
        (Stream(GOOD, negatives=0.15), 0.05, 0.8),
        (Stream(FAIR, negatives=0.05), 0.05, 0.8),
    ],
    ids=["strong", "good-5", "good-10", "good-15", "fair-5"],
)
def test_where_scores_separate_errors_stay_below_the_rate_and_most_hits_are_kept(
    stream: Stream, rate: float, most_kept: float
) -> None:
    total, outcomes = run_all(stream, rate, SEEDS)
    assert worst_false_share(outcomes) <= rate
    assert total.hit_ratio >= most_kept


@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_where_scores_overlap_hits_are_given_up_and_not_the_rate(rate: float) -> None:
    stream = Stream(FAIR)
    total, outcomes = run_all(stream, rate, SEEDS)
    assert worst_false_share(outcomes) <= rate
    assert total.unbounded_false / total.unbounded_hits > 0.04
    assert total.hit_ratio > 0.25


@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_a_hopeless_score_ends_reuse_instead_of_erring(rate: float) -> None:
    """A few lucky reuses happen before that; their errors are few among all requests."""
    total, _ = run_all(Stream(HOPELESS, entries_differ=False), rate, SEEDS)
    assert total.hit_ratio < 0.08
    assert total.false <= 0.01 * total.unbounded_hits


@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_a_comparison_with_known_noise_costs_hits_and_no_errors(rate: float) -> None:
    total, outcomes = run_all(Stream(GOOD, noise=0.05), rate, SEEDS)
    assert worst_false_share(outcomes) <= rate
    assert total.hits > 0


@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_a_verifier_that_becomes_worse_in_the_middle_is_noticed(rate: float) -> None:
    stream = Stream(GOOD, then=(FAIR, 0.15))
    total, _ = run_all(stream, rate, SEEDS)
    assert total.false_share <= rate
    assert total.hit_ratio >= 0.55


def test_what_was_learned_survives_a_restart_and_saves_the_learning() -> None:
    first = LearnedBound(0.02)
    run(Stream(GOOD), 0.02, 1, first)
    again = LearnedBound.from_dict(0.02, json.loads(json.dumps(first.to_dict())))
    warm, cold = run(Stream(GOOD), 0.02, 2, again), run(Stream(GOOD), 0.02, 2)
    assert warm.hits > cold.hits
    assert warm.false_share <= 0.02


def test_at_any_time_the_mean_of_the_bounds_of_all_reuses_is_at_most_the_rate() -> None:
    bound, random = LearnedBound(0.02), Random(3)
    entries: dict[int, EntryEvidence] = {}
    reuses, spent = 0, 0.0
    for request in requests_of(Stream(GOOD), 3):
        evidence = entries.get(request.topic, EntryEvidence())
        decision = bound.decide(evidence, request.score, random.random())
        if decision.reuse:
            reuses, spent = reuses + 1, spent + decision.bound * bound.budget.calibration
            bound.reused(decision)
            assert spent <= 0.02 * reuses + 0.2
        elif decision.explore:
            audited = decision.bound if decision.reason == "audit" else None
            entries[request.topic] = bound.learn(evidence, request.score, not request.wrong, audited)
    assert reuses > 1000
