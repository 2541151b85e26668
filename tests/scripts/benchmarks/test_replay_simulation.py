"""The simulated engines keep time as real ones do, and the policies meet them as they meet real ones."""

from __future__ import annotations

import random

import pytest
from benchmarks.mooncake import Arrival
from benchmarks.replay_simulation import EngineSettings, simulate

SLOW = EngineSettings(prefill_s_per_token=0.01, cache_tokens=10_000, slots=2, itl_s=0.1)


def arrival(at_s: float, *blocks: int, tokens: int = 100, output: int = 1) -> Arrival:
    return Arrival(at_s, tuple((block, tokens) for block in blocks), output)


def conversations(seed: int = 0) -> list[Arrival]:
    """200 conversations of up to six turns each, interleaved."""
    choose, at_s, found = random.Random(seed), 0.0, []
    turns = [chain for chain in range(200) for _ in range(6)]
    choose.shuffle(turns)
    length = dict.fromkeys(range(200), 1)
    for chain in turns:
        at_s += choose.expovariate(20)
        found.append(
            arrival(at_s, 0, *(1000 * chain + turn for turn in range(1, length[chain] + 1)), output=5)
        )
        length[chain] += 1
    return found


def test_an_idle_engine_takes_the_time_of_the_prompt() -> None:
    assert simulate([arrival(0.0, 1, 2)], "least_wait", SLOW, engines=1).ttft_s == pytest.approx([2.0])


def test_prompts_are_prefilled_one_after_the_other() -> None:
    outcome = simulate([arrival(0.0, 1), arrival(0.5, 2)], "least_wait", SLOW, engines=1)
    assert outcome.ttft_s == pytest.approx([1.0, 1.5])


def test_what_is_cached_is_not_prefilled_again() -> None:
    requests = [arrival(0.0, 1, 2), arrival(5.0, 1, 2, 3), arrival(9.0, 1, 2)]
    outcome = simulate(requests, "least_wait", SLOW, engines=1)
    assert outcome.ttft_s == pytest.approx([2.0, 1.0, 0.01])  # a prompt's last token is always computed
    assert outcome.cached_share == pytest.approx((200 + 199) / 700)


def test_a_full_cache_forgets_what_was_used_longest_ago() -> None:
    small = EngineSettings(prefill_s_per_token=0.01, cache_tokens=200)
    outcome = simulate(
        [arrival(9.0 * turn, block) for turn, block in enumerate((1, 2, 3, 1, 3))], "prefix", small
    )
    assert outcome.cached_tokens <= 99


def test_an_answer_keeps_its_slot_to_its_end() -> None:
    requests = [arrival(0.0, 1, output=101), arrival(0.0, 2, output=101), arrival(0.0, 3)]
    outcome = simulate(requests, "least_wait", SLOW, engines=1)
    assert outcome.ttft_s == pytest.approx([1.0, 2.0, 11.0 + 1.0])


def test_every_request_is_answered_once_by_every_policy() -> None:
    requests = conversations()
    settings = EngineSettings(0.001, cache_tokens=20_000)
    for policy in ("round_robin", "session", "least_wait", "prefix"):
        outcome = simulate(requests, policy, settings, gateways=2)
        assert sum(outcome.requests.values()) == len(requests)
        assert min(outcome.ttft_s) > 0


def test_prefixes_are_found_again_and_cost_no_queue() -> None:
    requests = conversations()
    settings = EngineSettings(0.0008, cache_tokens=20_000)
    turns, least, prefix = (
        simulate(requests, policy, settings) for policy in ("round_robin", "least_wait", "prefix")
    )
    assert prefix.cached_share > 1.2 * max(turns.cached_share, least.cached_share)
    assert sum(prefix.ttft_s) < 0.7 * sum(turns.ttft_s)
    assert sum(prefix.ttft_s) < sum(least.ttft_s)
