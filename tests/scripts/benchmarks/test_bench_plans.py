"""The benchmark of plans: each published time has its ratio, and a config that cannot be planned counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from benchmarks.options import Options
from benchmarks.plans import CONFIGS, is_planned, run, shipped, worst
from benchmarks.published import FITTED, FORECAST

SHIPPED = CONFIGS / "gpu-8b.yaml"


def too_large(folder: Path) -> Path:
    document = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    (model,) = document["applications"][0]["args"]["models"]
    model["source"] = "meta-llama/Llama-3.3-70B-Instruct"
    path = folder / "large.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_each_published_time_and_the_shipped_configs_are_reported(tmp_path: Path) -> None:
    figures = run(Options(tmp_path))
    assert [figure.met for figure in figures if figure.target is not None] == [True] * 3
    assert sum(figure.unit == "×" for figure in figures) == len(FITTED) + len(FORECAST) + 2
    assert json.loads((tmp_path / "plans.json").read_text())["figures"]


def test_the_worst_case_decides_whichever_way_it_is_off() -> None:
    case = FORECAST[0]
    slow, fast = (case._replace(published=case.expected_ms() * by) for by in (0.8, 1.25))
    assert worst([slow]) == pytest.approx(25)
    assert worst([fast, case._replace(published=case.expected_ms())]) == pytest.approx(20)


def test_a_config_that_does_not_fit_is_not_planned(tmp_path: Path) -> None:
    large = too_large(tmp_path)
    assert is_planned(SHIPPED)
    assert not is_planned(large)
    assert shipped([SHIPPED, large]).met is False
