"""The targets of the serving layer compare within a repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.layer import PROMPTLY, STREAMS, Level, Pairs, targets

BARE = Level(
    ttft_p50_ms=20.0,
    ttft_p99_ms=100.0,
    chunk_delay_p50_ms=0.1,
    chunk_delay_p99_ms=1.0,
    tokens_per_s=1000.0,
    cpu_s_per_1k_tokens=0.0,
    errors=0.0,
)


def test_an_overloaded_layer_is_compared_with_the_engine_and_the_best_peer_of_its_repeat() -> None:
    ours = replace(BARE, ttft_p50_ms=30.0, ttft_p99_ms=300.0, tokens_per_s=950.0)
    best, other = replace(BARE, ttft_p99_ms=200.0), replace(BARE, ttft_p99_ms=600.0)
    pairs: Pairs = {}
    for streams in STREAMS:
        pairs[PROMPTLY, streams] = [(BARE, ours)] * 2
        pairs["one", streams] = [(BARE, best), (BARE, other)]
        pairs["two", streams] = [(BARE, other), (BARE, other)]
    found = {figure.name: figure.values for figure in targets(pairs)}
    assert found["TTFT p50 over bare, 256 streams"] == pytest.approx((1.5, 1.5))
    assert found["TTFT p99 over the best peer's, 256 streams"] == pytest.approx((1.5, 0.5))
    assert found["throughput over bare, 256 streams"] == pytest.approx((0.95, 0.95))
