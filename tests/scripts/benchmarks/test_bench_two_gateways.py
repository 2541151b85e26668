"""The load of the comparison of gateways has enough hits and joined requests to tell 2 % apart."""

from __future__ import annotations

import heapq
import math
from collections import Counter

import pytest
from benchmarks.load import Request, Sample
from benchmarks.two_gateways import (
    ITL_MS,
    MOST_DIFFERENCE,
    REQUESTS,
    STREAMS,
    TIMES,
    TOKENS,
    difference,
    error,
    requests,
    sent_during,
)

HIT_S = 0.004


def outcomes(load: list[Request]) -> Counter[str]:
    """As one gateway would answer it: a request joins an equal one that is being answered."""
    free, ends, found = [0.0] * STREAMS, dict[bytes, float](), Counter[str]()
    for request in load:
        now = heapq.heappop(free)
        end = ends.get(request.body)
        found["miss" if end is None else "joined" if now < end else "hit"] += 1
        if end is None:
            ends[request.body] = end = now + TOKENS * ITL_MS / 1000
        heapq.heappush(free, max(end, now + HIT_S))
    return found


def test_each_question_is_asked_equally_often_in_an_order_that_the_seed_says() -> None:
    load = requests(REQUESTS, 0)
    asked = Counter(request.body for request in load)
    assert len(load) == REQUESTS
    assert set(asked.values()) == {TIMES}
    assert [each.body for each in load] == [each.body for each in requests(REQUESTS, 0)]
    assert [each.body for each in load] != [each.body for each in requests(REQUESTS, 1)]


@pytest.mark.parametrize("seed", range(3))
def test_hits_and_joined_requests_are_frequent_enough_to_be_compared(seed: int) -> None:
    found = outcomes(requests(REQUESTS, seed))
    for name in ("hit", "joined"):
        share = found[name] / REQUESTS
        assert 0.4 < share < 0.6
        assert error(share, 3 * REQUESTS) < MOST_DIFFERENCE / 2


def test_the_error_is_that_of_a_difference_of_two_counts() -> None:
    assert error(0.5, 20_000) == pytest.approx(1.0)
    assert error(0.0, 100) == math.inf
    assert difference(100, 98) == pytest.approx(-2.0)


def sample(sent_at: float, ended_at: float, cache: str) -> Sample:
    return Sample(200, sent_at, ended_at, headers={"x-cache": cache})


def test_a_request_counts_that_was_sent_while_an_engine_answered_an_equal_one() -> None:
    samples = {
        "asked": sample(0.0, 0.5, "miss"),
        "during": sample(0.1, 0.5, "joined"),
        "during, and found": sample(0.4, 0.6, "exact"),
        "after": sample(0.5, 0.7, "joined"),
    }
    assert sent_during([b"a"] * len(samples), list(samples.values())) == 2
    assert sent_during([b"a", b"b", b"c", b"d"], list(samples.values())) == 0
