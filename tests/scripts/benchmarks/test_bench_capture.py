"""The benchmark of capture compares both starts with the bare engine beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.capture import CAPTURED, PLAIN, figures_of, settings_of
from benchmarks.layer import Level, settings_for

from serve_app.settings import parse_args

BARE = Level(
    ttft_p50_ms=20.0,
    ttft_p99_ms=30.0,
    chunk_delay_p50_ms=0.1,
    chunk_delay_p99_ms=1.0,
    tokens_per_s=3000.0,
    cpu_s_per_1k_tokens=0.0,
    errors=0.0,
)


def test_throughput_with_capture_is_relative_to_that_without() -> None:
    on = replace(BARE, ttft_p50_ms=31.0, tokens_per_s=2700.0, cpu_s_per_1k_tokens=0.12)
    off = replace(BARE, ttft_p50_ms=30.5, tokens_per_s=1450.0, cpu_s_per_1k_tokens=0.10)
    slow = replace(BARE, tokens_per_s=1500.0)
    figures = figures_of([{CAPTURED: [(BARE, on)], PLAIN: [(slow, off)]}])
    throughput, ttft, cpu = [figure.values for figure in figures]
    assert throughput == pytest.approx((0.9 / (1450 / 1500),))
    assert ttft == pytest.approx((0.5,))
    assert cpu == pytest.approx((1.2,))


def test_one_start_captures_everything_and_the_other_nothing(tmp_path: Path) -> None:
    given = {
        name: parse_args(settings_for("http://127.0.0.1:1", **settings_of(name, tmp_path)), source="test")
        for name in (CAPTURED, PLAIN)
    }
    assert given[PLAIN].feedback is None
    feedback = given[CAPTURED].feedback
    assert feedback is not None
    assert feedback.capture is not None
    assert feedback.capture.tenants == {"default": 1.0}
