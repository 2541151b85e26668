"""The autoscaling benchmark compares both policies on every case, and asks for its traces by name."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from autoscaling_simulation.trace import Request
from benchmarks.autoscaling import CODE, CONVERSATION, backwards, cases, run
from benchmarks.options import Options
from benchmarks.peers import PeerError


def write_trace(path: Path, seed: int) -> None:
    """Ten minutes of bursts."""
    choose, at_s, rows = Random(seed), 0.0, ["t_s,input_tokens,output_tokens"]
    for _ in range(8):
        at_s += choose.uniform(30, 90)
        for _ in range(80):
            at_s += choose.expovariate(10)
            rows.append(f"{at_s:.3f},{choose.randint(500, 6000)},{choose.randint(5, 60)}")
    path.write_text("\n".join(rows) + "\n")


def test_each_case_is_compared_and_the_bursty_one_has_the_target(tmp_path: Path) -> None:
    for seed, name in enumerate((CODE, CONVERSATION)):
        write_trace(tmp_path / name, seed)
    figures = run(Options(tmp_path / "out", quick=True), tmp_path)
    ratios = [figure for figure in figures if figure.unit == "×"]
    trace = [Request(0.0, 1, 1), Request(1.0, 1, 1)]
    assert [figure.series for figure in ratios] == [case.name for case in cases(trace, trace)]
    assert [figure.series for figure in figures if figure.target] == ["code"]
    late, default = (
        {each.series: each.median for each in figures if each.name.endswith(end)}
        for end in ("tokens", "Serve's default")
    )
    for ratio in ratios:
        assert late[ratio.series] == pytest.approx(ratio.median * default[ratio.series])
    assert "code, backwards in time" in (tmp_path / "out" / "autoscaling.md").read_text()


def test_backwards_keeps_the_gaps() -> None:
    trace = [Request(1.0, 10, 1), Request(4.0, 20, 2), Request(5.0, 30, 3)]
    assert backwards(trace) == [Request(0.0, 30, 3), Request(1.0, 20, 2), Request(4.0, 10, 1)]


def test_traces_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=CODE):
        run(Options(tmp_path), tmp_path)
