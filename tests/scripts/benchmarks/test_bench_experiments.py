"""The benchmark of experiments: what it starts, and what it counts."""

from __future__ import annotations

import pytest
from benchmarks.experiments import CANDIDATE, SHARE, TRIED, candidates, settings_for, ttft_p95
from benchmarks.load.requests import Sample
from benchmarks.peers import Endpoint

from serve_app.settings import parse_args


def test_its_settings_are_settings_and_shadow_one_name_alone() -> None:
    engines = [Endpoint(name, f"http://127.0.0.1:{port}", name, ()) for name, port in (("a", 1), ("b", 2))]
    (experiment,) = parse_args(settings_for(*engines), source="test").experiments
    assert (experiment.kind, experiment.models) == ("shadow", (TRIED,))
    assert [(arm.model, arm.percent) for arm in experiment.arms] == [(CANDIDATE, SHARE)]


def test_the_split_is_near_its_share() -> None:
    assert len(candidates(5000)) == pytest.approx(5000 * SHARE / 100, rel=0.1)


def test_only_answers_count() -> None:
    good = [Sample(200, 0, 1, ttft_s=float(number)) for number in range(1, 101)]
    assert ttft_p95([*good, Sample(500, 0, 1, ttft_s=999.0, error="no")]) == 95.0
