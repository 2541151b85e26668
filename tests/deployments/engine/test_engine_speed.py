"""An engine's pace, read from the statistics of the installed vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine import FinishReason
from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, PrefillStats, SchedulerStats

from deployments.engine.vllm.bridge import LoadProbe


@pytest.fixture
def probe() -> LoadProbe:
    config = SimpleNamespace(speculative_config=None, scheduler_config=SimpleNamespace(max_num_seqs=4))
    client: Any = SimpleNamespace(
        vllm_config=config,
        logger_manager=None,
        get_num_unfinished_requests=lambda: 3,
        output_processor=SimpleNamespace(get_num_queued_tokens=lambda: 700),
    )
    return LoadProbe(client)


def prefilled(tokens: int, cached: int, ttft_s: float) -> IterationStats:
    step, prefill = IterationStats(), PrefillStats()
    prefill.set(tokens, cached, 0)
    step.prompt_token_stats.update_from_output(prefill)
    step.time_to_first_tokens_iter.append(ttft_s)
    return step


def test_prompts_are_counted_with_what_the_prefix_cache_gave(probe: LoadProbe) -> None:
    probe.record(SchedulerStats(num_running_reqs=1), prefilled(1000, 600, ttft_s=0.5), engine_idx=0)
    assert probe.speed.prefill_tokens_per_s == pytest.approx(2000)


def test_a_full_engine_is_not_measured(probe: LoadProbe) -> None:
    probe.record(SchedulerStats(num_running_reqs=4), prefilled(1000, 0, ttft_s=9.0))
    assert probe.speed.prefill_tokens_per_s is None


def test_ends_and_gaps_are_measured_and_what_never_ran_is_not(probe: LoadProbe) -> None:
    step = IterationStats()
    step.inter_token_latencies_iter += [0.02, 0.04]
    for seconds in (3.0, 0.0):
        step.finished_requests.append(FinishedRequestStats(FinishReason.STOP, inference_time=seconds))
    probe.record(SchedulerStats(), step)
    assert probe.speed.itl_s == pytest.approx(0.03)
    assert probe.speed.service_s == pytest.approx(3.0)


def test_a_measurement_can_begin_anew(probe: LoadProbe) -> None:
    probe.record(SchedulerStats(), prefilled(10, 0, ttft_s=5.0))
    probe.reset_speed()
    assert probe.speed.prefill_tokens_per_s is None


def test_the_load_names_prompt_tokens_that_are_not_prefilled(probe: LoadProbe) -> None:
    assert probe.load().waiting_tokens == 700
