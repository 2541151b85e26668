"""The plots of the README: their figures are those of docs/benchmarks.md, and new results are taken in."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import draw_images
import pytest
from draw_images import CACHE, FIGURES, IMAGES, TTFT, cache_of, ttft_of

BENCHMARKS = (IMAGES.parent / "benchmarks.md").read_text(encoding="utf-8")


@pytest.fixture
def figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((IMAGES / FIGURES).read_text(encoding="utf-8"))
    return found


def row(name: str) -> list[str]:
    """The cells of the first table row of docs/benchmarks.md that begins with ``name``."""
    found = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", BENCHMARKS, re.MULTILINE)
    assert found, name
    return [cell.strip().replace(",", "") for cell in found[1].split("|")]


def test_the_plot_of_ttft_shows_the_figures_of_the_table(figures: dict[str, Any]) -> None:
    series = figures[TTFT]["series"]
    columns = ["bare engine", "Promptly", "ray.serve.llm, direct streaming", "ray.serve.llm", "LiteLLM proxy"]
    assert set(series) == set(columns)
    for streams in ("1", "16", "64", "256"):
        name = f"TTFT p50, {streams} {'stream' if streams == '1' else 'streams'}, ms"
        assert [series[column][streams] for column in columns] == [float(cell) for cell in row(name)]


def test_the_plot_of_the_cache_shows_the_figures_of_the_table(figures: dict[str, Any]) -> None:
    table = BENCHMARKS[BENCHMARKS.index("| `blind/fourth`") :]
    for name, label in (("balanced setting", "balanced"), ("strict setting", "strict")):
        recall, wrong = figures[CACHE]["settings"][name]
        found = re.search(rf"^\|.*\| {label} \| ([\d.]+) .*?\| ([\d.]+) %", table, re.MULTILINE)
        assert found
        assert float(found[1]) == pytest.approx(recall / 100, abs=0.005)
        assert float(found[2]) == pytest.approx(wrong, abs=0.05)


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    drawn = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        shutil.copy(IMAGES / FIGURES, folder / FIGURES)
        draw_images.main(["--images", str(folder)])
        drawn.append({path.name: path.read_bytes() for path in folder.glob("*.svg")})
    assert drawn[0] == drawn[1]
    assert sorted(drawn[0]) == ["cache_recall.svg", "ttft_peers.svg"]
    assert b"direct streaming" in drawn[0]["ttft_peers.svg"]
    assert b"wrong hits among hits" in drawn[0]["cache_recall.svg"]


def test_a_new_result_replaces_the_stored_one(tmp_path: Path, figures: dict[str, Any]) -> None:
    shutil.copy(IMAGES / FIGURES, tmp_path / FIGURES)
    layer = tmp_path / "layer.json"
    shown = [("TTFT p50, 1 stream", "Promptly", 20.04), ("TTFT p50, 64 streams", "Promptly", 30.0)]
    other = [("TTFT p50 over bare, 64 streams", "", 1.4), ("TTFT p99, 64 streams", "Promptly", 99.0)]
    values = [{"name": name, "series": series, "median": median} for name, series, median in shown + other]
    layer.write_text(json.dumps({"figures": values}))
    draw_images.main(["--images", str(tmp_path), "--ttft", str(layer), "--about", "machine C"])
    stored = json.loads((tmp_path / FIGURES).read_text(encoding="utf-8"))
    series = {"Promptly": {"1": 20.0, "64": 30.0}}
    assert stored[TTFT] == {"about": "machine C", "unit": "ms", "series": series}
    assert stored[CACHE] == figures[CACHE]


def test_figures_are_read_from_the_reports() -> None:
    def rate(recall: float, wrong: float) -> dict[str, Any]:
        return {
            "name": "x",
            "recall": {"value": recall},
            "false_share": {"traffic 30/65/5": {"value": wrong}},
        }

    report = {
        "embedder": "letters",
        "rows": [rate(0.5, 0.04)],
        "cosine_curve": [rate(0.7, 0.2)],
        "score_curve": [rate(0.6, 0.05)],
        "reasons": {"hit": {"para": 2, "diff": 0, "hard": 1}},
    }
    found = cache_of(report, "now")
    assert found["settings"] == {"x": (50.0, 4.0)}
    assert found["curves"]["Promptly: guards and verifier"] == [(60.0, 5.0)]
    assert found["pairs"] == 3
    assert ttft_of({"figures": []}, "now")["series"] == {}


def test_a_result_without_its_origin_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        draw_images.main(["--cache", "nowhere.json"])
    assert "--about" in capsys.readouterr().err
