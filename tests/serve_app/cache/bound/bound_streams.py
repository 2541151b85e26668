"""Streams of requests whose right answer is known, and what a policy makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from serve_app.cache.bound import EntryEvidence, LearnedBound

DEFAULT_THRESHOLD = 0.5
"""Where the unbounded policy reuses: a verifier's "more likely than not"."""

Beta = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Verifier:
    """Scores of near entries that are right, and of hard negatives."""

    right: Beta
    wrong: Beta


STRONG = Verifier((14, 1.2), (2, 5))
GOOD = Verifier((9, 1.5), (2.5, 4))
FAIR = Verifier((6, 1.6), (3, 3.5))
HOPELESS = Verifier((4, 2), (4, 2))


@dataclass(frozen=True, slots=True)
class Stream:
    """``negatives`` is the share of requests that only look like their nearest entry; where
    ``entries_differ`` an entry has from none to three times as many. ``noise`` is the share of comparisons
    that come out wrong. ``then`` takes over in the middle."""

    verifier: Verifier
    negatives: float = 0.10
    noise: float = 0.0
    entries_differ: bool = True
    requests: int = 5000
    topics: int = 400
    then: tuple[Verifier, float] | None = None


@dataclass(slots=True)
class Outcome:
    hits: int = 0
    false: int = 0
    unbounded_hits: int = 0
    unbounded_false: int = 0

    @property
    def false_share(self) -> float:
        return self.false / max(1, self.hits)

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.unbounded_hits

    def add(self, other: Outcome) -> None:
        self.hits += other.hits
        self.false += other.false
        self.unbounded_hits += other.unbounded_hits
        self.unbounded_false += other.unbounded_false


@dataclass(frozen=True, slots=True)
class Request:
    topic: int
    score: float
    wrong: bool


def requests_of(stream: Stream, seed: int) -> Iterator[Request]:
    """Topics by Zipf's law; the first request of each has no near entry and is left out."""
    random, seen = Random(seed), set[int]()
    weights = list(accumulate(1 / (rank + 1) for rank in range(stream.topics)))
    traps = [random.random() ** 2 * 3 if stream.entries_differ else 1.0 for _ in range(stream.topics)]
    for number in range(stream.requests):
        late = stream.then is not None and number >= stream.requests // 2
        verifier, negatives = stream.then if late and stream.then else (stream.verifier, stream.negatives)
        (topic,) = random.choices(range(stream.topics), cum_weights=weights)
        if topic not in seen:
            seen.add(topic)
            continue
        wrong = random.random() < min(0.9, negatives * traps[topic])
        score = random.betavariate(*(verifier.wrong if wrong else verifier.right))
        yield Request(topic, score, wrong)


def run(stream: Stream, rate: float, seed: int, bound: LearnedBound | None = None) -> Outcome:
    """What the learned bound makes of a stream, beside the unbounded policy."""
    random, outcome = Random(seed + 10_000), Outcome()
    bound = LearnedBound(rate) if bound is None else bound
    entries: dict[int, EntryEvidence] = {}
    if stream.noise:
        for _ in range(500):
            bound.population.observe_repeat(random.random() >= stream.noise)
    for request in requests_of(stream, seed):
        outcome.unbounded_hits += request.score >= DEFAULT_THRESHOLD
        outcome.unbounded_false += request.score >= DEFAULT_THRESHOLD and request.wrong
        evidence = entries.get(request.topic, EntryEvidence())
        decision = bound.decide(evidence, request.score, random.random())
        if decision.reuse:
            bound.reused(decision)
            outcome.hits += 1
            outcome.false += request.wrong
        elif decision.explore:
            seen_right = request.wrong is (random.random() < stream.noise)
            audited = decision.bound if decision.reason == "audit" else None
            entries[request.topic] = bound.learn(evidence, request.score, seen_right, audited)
    return outcome


def run_all(stream: Stream, rate: float, seeds: range) -> tuple[Outcome, list[Outcome]]:
    """All seeds together, and each."""
    outcomes, total = [run(stream, rate, seed) for seed in seeds], Outcome()
    for outcome in outcomes:
        total.add(outcome)
    return total, outcomes
