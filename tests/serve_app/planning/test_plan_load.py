"""TTFT and time per token at a load, and how many replicas a target needs."""

from __future__ import annotations

import math
import random

import pytest

from serve_app.planning import (
    Engine,
    Latency,
    Load,
    Speed,
    Target,
    Trace,
    latency_at,
    mean_wait_s,
    replay,
    replicas_for,
    replicas_for_trace,
    trace_load,
)

SPEED = Speed(
    dense_bytes=1e10,
    expert_bytes=0.0,
    expert_share=0.0,
    kv_per_token=1e5,
    bytes_per_s=1e12,
    flops_per_token=1e10,
    flops_per_context=0.0,
    flops_per_s=1e14,
    fixed_s=0.0,
    link_s_per_token=0.0,
)
"""A step of 10 ms, and 0.1 ms per token of a prompt."""

ENGINE = Engine(SPEED, max_num_seqs=64, kv_tokens=200_000, step_tokens=1_000_000)


def poisson(rate: float, count: int, prompt: int, output: int) -> Trace:
    chance = random.Random(7)
    clock, arrivals = 0.0, []
    for _ in range(count):
        clock += chance.expovariate(rate)
        arrivals.append(clock)
    return Trace(tuple(arrivals), (prompt,) * count, (output,) * count)


def test_without_load_a_request_waits_for_nobody() -> None:
    found = latency_at(ENGINE, Load(1e-6, 1000, 100), 1)
    assert found.ttft_s == pytest.approx(0.1, rel=1e-3)
    assert found.tpot_s == pytest.approx(SPEED.decode_step_s(1, 1050))


def test_load_makes_batches_and_waits() -> None:
    idle, busy = (latency_at(ENGINE, Load(rate, 1000, 100), 1) for rate in (0.1, 5.0))
    assert busy.ttft_s > 1.5 * idle.ttft_s
    assert busy.tpot_s > 1.5 * idle.tpot_s
    assert busy.batch == pytest.approx(5.0 * 100 * busy.tpot_s)  # Little's law


def test_a_load_beyond_the_prompts_or_the_slots_grows_without_end() -> None:
    assert latency_at(ENGINE, Load(10.0, 1000, 100), 1).ttft_s == math.inf
    few = Engine(SPEED, max_num_seqs=2, kv_tokens=200_000, step_tokens=1_000_000)
    assert latency_at(few, Load(2.0, 100, 1000), 1).tpot_s == math.inf


def test_the_kv_cache_bounds_how_many_run() -> None:
    assert ENGINE.slots(1000) == 64
    assert ENGINE.slots(20_000) == 10
    assert ENGINE.slots(500_000) == 0
    assert latency_at(ENGINE, Load(0.1, 400_000, 100_000), 1).ttft_s == math.inf


def test_a_prompt_in_parts_shares_steps_with_answers() -> None:
    parted = Engine(SPEED, 64, 200_000, step_tokens=256)
    assert parted.prefill_s(1000, 0.0, 0.0) == pytest.approx(0.1)
    assert parted.prefill_s(1000, 8.0, 1000.0) == pytest.approx(0.1 + 4 * SPEED.decode_step_s(8, 1000))


def test_enough_replicas_meet_the_target_and_one_less_does_not() -> None:
    load, target = Load(30.0, 1000, 100), Target(ttft_s=0.3, tpot_s=0.03)
    found = replicas_for(ENGINE, load, target)
    assert found is not None
    assert found.ttft_s <= 0.3
    assert found.tpot_s <= 0.03
    less = latency_at(ENGINE, load, found.replicas - 1)
    assert less.ttft_s > 0.3 or less.tpot_s > 0.03


def test_a_target_below_one_requests_own_time_is_out_of_reach() -> None:
    assert replicas_for(ENGINE, Load(1.0, 1000, 100), Target(ttft_s=0.05)) is None


def test_a_replayed_poisson_stream_waits_as_the_formula_says() -> None:
    # Prompts alone: answers of no tokens hold no slot, so this is M/D/1.
    trace = poisson(6.0, 40_000, 1000, 0)
    found = replay(ENGINE, trace, 1, Target(share=0.5))
    waits = mean_wait_s(6.0, 0.1, 1, 1.0, 0.0)
    assert found.utilization == pytest.approx(0.6, rel=0.03)
    median = found.ttft_s - 0.1
    assert 0.3 * waits < median < 1.1 * waits  # the median of such a wait is below its mean


def test_a_burst_needs_more_than_its_mean_rate_says() -> None:
    calm = Trace(tuple(float(second) for second in range(100)), (1000,) * 100, (10,) * 100)
    burst = Trace((0.0,) * 99 + (99.0,), (1000,) * 100, (10,) * 100)
    target = Target(ttft_s=1.0, share=0.95)
    assert replicas_for_trace(ENGINE, calm, target) == replay(ENGINE, calm, 1, target)
    found = replicas_for_trace(ENGINE, burst, target)
    assert found is not None
    assert found.replicas >= 9


def test_slots_hold_back_what_comes_later() -> None:
    single = Engine(SPEED, max_num_seqs=1, kv_tokens=200_000, step_tokens=1_000_000)
    trace = Trace((0.0, 0.0), (1000, 1000), (100, 100))
    first = replay(single, trace, 1, Target(share=0.5))
    second = replay(single, trace, 1, Target(share=1.0))
    assert first.ttft_s == pytest.approx(0.1)
    assert second.ttft_s == pytest.approx(0.1 + 100 * SPEED.decode_step_s(1, 1050) + 0.1)


def test_a_trace_that_no_slot_can_hold_is_endless() -> None:
    trace = Trace((0.0, 1.0), (400_000, 400_000), (1, 1))
    assert replay(ENGINE, trace, 1, Target()) == Latency(1, math.inf, math.inf, 0.0, 1.0)


def test_a_trace_says_its_rate_and_spread() -> None:
    found = trace_load(Trace((0.0, 1.0, 2.0), (100, 200, 300), (10, 10, 10)))
    assert (found.rate, found.prompt_tokens, found.output_tokens) == (1.0, 200.0, 10.0)
    assert found.arrival_scv == 0.0
    assert found.prompt_scv == pytest.approx(1 / 6)
    assert trace_load(poisson(3.0, 5000, 1, 1)).arrival_scv == pytest.approx(1.0, rel=0.1)
