"""The routing benchmark's figures, and what it does where the trace is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.mooncake import Arrival
from benchmarks.options import Options
from benchmarks.routing import ENGINES, Run, all_figures, layout, run, s_per_token, sweep

from serve_app.routing import POLICIES as KNOWN


def a_run(*ttft_ms: float) -> Run:
    return Run(ttft_ms, cached_share=0.2, errors=0, late_p99_ms=1.0)


MEASURED = {
    "round_robin": [a_run(100.0, 300.0), a_run(100.0, 200.0)],
    "least_wait": [a_run(90.0, 110.0), a_run(100.0, 110.0)],
    "prefix": [a_run(40.0, 120.0), a_run(50.0, 100.0)],
}


def test_without_the_trace_it_is_skipped_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Options(tmp_path), trace=tmp_path / "none.jsonl") == []
    assert "skipped" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_targets_are_ratios_within_each_repeat() -> None:
    mean, p99 = (figure for figure in all_figures(MEASURED) if figure.target is not None)
    assert mean.values == pytest.approx((80 / 200, 75 / 150))
    assert p99.values == pytest.approx((120 / 110, 100 / 110))
    assert (mean.met, p99.met) == (True, True)


def test_every_policy_has_its_column() -> None:
    text = layout(all_figures(MEASURED))
    assert "| figure | round_robin | least_wait | prefix |" in text
    assert "not met" not in text


def test_a_load_of_one_keeps_all_engines_busy() -> None:
    requests = [Arrival(float(second), ((second, 500),), 1) for second in range(11)]
    busy_s = sum(one.prompt_tokens for one in requests) * s_per_token(requests, 1.0)
    assert busy_s == pytest.approx(ENGINES * requests[-1].at_s)


def test_the_sweep_shows_every_policy_at_every_point() -> None:
    requests = [Arrival(0.1 * number, ((0, 32), (number % 7, 32)), 2) for number in range(50)]
    figures = sweep([requests])
    assert {figure.series for figure in figures} == set(KNOWN)
    names = {figure.name for figure in figures}
    assert len(figures) == len(names) * len(KNOWN)
    assert "mean TTFT, load 0.8, cache 2M" in names
