"""Figures of benchmarks, their tables and files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from benchmarks.table import (
    Figure,
    at_least,
    at_most,
    cdf,
    comparison,
    figures_of,
    number,
    plot_bars,
    plot_cdf,
    plot_lines,
    table,
    write_report,
)

TTFT = Figure("TTFT", "ms", (30.0, 10.0, 20.0), at_most(25))
RATE = Figure("rate", "tok/s", (2900.0,), at_least(3000))
PNG = b"\x89PNG\r\n"


def test_a_figure_is_the_median_of_its_repeats_and_their_range() -> None:
    assert (TTFT.median, TTFT.low, TTFT.high, TTFT.met) == (20.0, 10.0, 30.0, True)
    assert RATE.met is False
    assert Figure("x", "s", (1.0,)).met is None


def test_a_figure_that_was_not_measured_meets_nothing() -> None:
    figure = Figure("TTFT", "ms", (1.0, math.nan), at_most(25))
    assert math.isnan(figure.median)
    assert figure.met is False


def test_a_figure_needs_a_value() -> None:
    with pytest.raises(ValueError, match="TTFT: a figure needs a value"):
        Figure("TTFT", "ms", ())


@pytest.mark.parametrize(
    ("value", "text"),
    [(3215.9, "3,216"), (39.12, "39.1"), (2.744, "2.74"), (0.03312, "0.0331"), (0, "0"), (math.nan, "–")],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_table_says_whether_targets_are_met() -> None:
    assert table([TTFT, RATE]).splitlines() == [
        "| figure | median | min–max | target |  |",
        "| --- | --- | --- | --- | --- |",
        "| TTFT, ms | 20.0 | 10.0–30.0 | ≤ 25 | met |",
        "| rate, tok/s | 2,900 | 2,900–2,900 | ≥ 3,000 | **not met** |",
    ]


def test_a_table_leaves_out_what_no_figure_has() -> None:
    assert table([Figure("a|b", "", (1.0,))]).splitlines()[::2] == [
        "| figure | median | min–max |",
        "| a\\|b | 1.00 | 1.00–1.00 |",
    ]


def test_a_comparison_has_a_column_for_each_series() -> None:
    figures = [Figure("TTFT", "ms", (value,), series=name) for name, value in (("a", 1.0), ("b", 2.0))]
    assert comparison([*figures, Figure("rate", "", (5.0,), series="b")]).splitlines() == [
        "| figure | a | b |",
        "| --- | --- | --- |",
        "| TTFT, ms | 1.00 (1.00–1.00) | 2.00 (2.00–2.00) |",
        "| rate |  | 5.00 (5.00–5.00) |",
    ]


def test_figures_are_made_of_the_attributes_of_repeats() -> None:
    (figure,) = figures_of([complex(1, 2), complex(3, 4)], {"imag": "i"}, series="numbers")
    assert figure == Figure("imag", "i", (2.0, 4.0), series="numbers")


def test_a_report_is_markdown_and_json(tmp_path: Path) -> None:
    figures = [TTFT, Figure("lost", "s", (math.nan,), series="x")]
    text = write_report(tmp_path / "bench", "gateway", figures, about={"cores": 2})
    assert (tmp_path / "bench" / "gateway.md").read_text() == text == f"- cores: 2\n\n{table(figures)}\n"
    document = json.loads((tmp_path / "bench" / "gateway.json").read_text())
    assert document["about"] == {"cores": 2}
    assert document["figures"][0] == {
        "name": "TTFT",
        "unit": "ms",
        "series": "",
        "median": 20.0,
        "min": 10.0,
        "max": 30.0,
        "values": [30.0, 10.0, 20.0],
        "target": "≤ 25",
        "met": True,
    }
    assert document["figures"][1]["values"] == [None]


def test_a_cdf_rises_to_all_samples() -> None:
    assert cdf([3.0, 1.0]) == [(1.0, 50.0), (3.0, 100.0)]


@pytest.fixture
def matplotlib() -> None:
    pytest.importorskip("matplotlib")


@pytest.mark.usefixtures("matplotlib")
def test_plots_are_png_files(tmp_path: Path) -> None:
    bars = [Figure(name, "ms", (1.0, 2.0), series=series) for name in ("p50", "p99") for series in ("a", "b")]
    plot_bars(tmp_path / "plots" / "bars.png", "Bars", bars[:3])
    plot_lines(tmp_path / "lines.png", "Lines", "streams", "tok/s", {"a": [(1, 1), (2, 3)]})
    plot_cdf(tmp_path / "cdf.png", "CDF", "TTFT, ms", {"a": [1.0, 2.0], "b": [3.0]}, log_x=True)
    for path in ("plots/bars.png", "lines.png", "cdf.png"):
        assert (tmp_path / path).read_bytes().startswith(PNG)


@pytest.mark.usefixtures("matplotlib")
def test_bars_of_different_units_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one unit"):
        plot_bars(tmp_path / "bars.png", "Bars", [TTFT, RATE])
