"""What vLLM's statistics say of an engine, read from objects of the installed vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.metrics.stats import IterationStats, SchedulerStats
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from deployments.engine.vllm.bridge import LoadProbe


def client(speculative_config: Any = None) -> Any:
    """As much of an ``AsyncLLM`` as the probe reads."""
    return SimpleNamespace(
        vllm_config=SimpleNamespace(
            speculative_config=speculative_config, scheduler_config=SimpleNamespace(max_num_seqs=4)
        ),
        output_processor=SimpleNamespace(get_num_queued_tokens=lambda: 12),
        logger_manager=SimpleNamespace(stat_loggers=[]),
        get_num_unfinished_requests=lambda: 1,
        errored=False,
    )


def one_step(drafted: int, accepted: int) -> tuple[SchedulerStats, IterationStats]:
    drafts = SpecDecodingStats.new(4)
    drafts.observe_draft(drafted, accepted)
    iteration = IterationStats()
    iteration.inter_token_latencies_iter.append(0.01)
    return SchedulerStats(num_running_reqs=1, spec_decoding_stats=drafts), iteration


def test_drafts_are_counted() -> None:
    probe = LoadProbe(client(object()))
    for _ in range(5):
        probe.record(*one_step(drafted=3, accepted=2), engine_idx=0)
    report = probe.speculation()
    assert report is not None
    assert (report.draft_tokens, report.accepted_tokens, report.depth) == (15, 10, 3)
    assert report.acceptance_rate == pytest.approx(2 / 3)


def test_steps_without_drafts_and_without_outputs_are_taken() -> None:
    probe = LoadProbe(client(object()))
    probe.record(SchedulerStats(num_running_reqs=1), IterationStats())
    probe.record(SchedulerStats(num_waiting_reqs=1, kv_cache_usage=0.5), None)
    probe.record(None, IterationStats())
    report = probe.speculation()
    assert report is not None
    assert report.draft_tokens == 0
    assert (probe.load().waiting, probe.load().kv_cache_usage) == (1, 0.5)


def test_an_engine_without_speculation_reports_none() -> None:
    probe = LoadProbe(client())
    probe.record(SchedulerStats(), IterationStats())
    assert probe.speculation() is None
