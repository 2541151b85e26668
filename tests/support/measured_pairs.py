"""Pairs of a bare engine and a Promptly beside it, as two starts measured them, and what one costs over the
other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from benchmarks.layer import Level
from benchmarks.table import Figure

BARE = Level(
    ttft_p50_ms=20.0,
    ttft_p99_ms=30.0,
    chunk_delay_p50_ms=0.1,
    chunk_delay_p99_ms=1.0,
    tokens_per_s=3000.0,
    cpu_s_per_1k_tokens=0.0,
    errors=0.0,
)
ON = [(BARE, replace(BARE, ttft_p50_ms=31.0, tokens_per_s=2700.0, cpu_s_per_1k_tokens=0.12))]
OFF = [
    (
        replace(BARE, tokens_per_s=1500.0),
        replace(BARE, ttft_p50_ms=30.5, tokens_per_s=1450.0, cpu_s_per_1k_tokens=0.10),
    )
]


def assert_relative_to_the_bare_engines(figures: Sequence[Figure]) -> None:
    throughput, ttft, cpu = [figure.values for figure in figures]
    assert throughput == pytest.approx((0.9 / (1450 / 1500),))
    assert ttft == pytest.approx((0.5,))
    assert cpu == pytest.approx((1.2,))
