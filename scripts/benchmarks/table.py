"""Figures of repeated measurements, and their output: Markdown, JSON and plots.

figures = [Figure("TTFT p50", "ms", (24.1, 23.8, 24.9), at_most(50), series="bare engine"), ...]
write_report(Path("bench"), "gateway", figures, about={"machine": "2 cores"})
plot_bars(Path("bench/gateway.png"), "Time to first token", figures)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
"""The colours of Okabe and Ito, which colour-blind readers can tell apart."""

SIZE_INCHES = (9.0, 5.0)
DPI = 120


@dataclass(frozen=True)
class Target:
    """The wanted range of a figure's median."""

    limit: float
    is_upper: bool

    def met_by(self, value: float) -> bool:
        return value <= self.limit if self.is_upper else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.is_upper else '≥'} {self.limit:,g}"


def at_most(limit: float) -> Target:
    return Target(limit, is_upper=True)


def at_least(limit: float) -> Target:
    return Target(limit, is_upper=False)


@dataclass(frozen=True)
class Figure:
    """One measured quantity; ``values`` has one value per repeat, NaN where there was none."""

    name: str
    unit: str
    values: tuple[float, ...]
    target: Target | None = None
    series: str = ""
    """What was measured, if several things are compared."""

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"{self.name}: a figure needs a value")

    @property
    def median(self) -> float:
        return math.nan if any(map(math.isnan, self.values)) else median(self.values)

    @property
    def low(self) -> float:
        return math.nan if math.isnan(self.median) else min(self.values)

    @property
    def high(self) -> float:
        return math.nan if math.isnan(self.median) else max(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; ``None`` without a target."""
        return None if self.target is None else self.target.met_by(self.median)

    @property
    def label(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def spread(self) -> str:
        return f"{number(self.low)}–{number(self.high)}"


def number(value: float) -> str:
    """The number with about three significant digits: 3,216 · 39.1 · 2.74 · 0.0331."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def figures_of(repeats: Sequence[Any], units: Mapping[str, str], series: str = "") -> list[Figure]:
    """A figure for each attribute in ``units`` (name to unit); the result of every repeat has these
    attributes."""
    return [
        Figure(name, unit, tuple(getattr(repeat, name) for repeat in repeats), series=series)
        for name, unit in units.items()
    ]


# ---- tables and files ------------------------------------------------------------------------------------


def table(figures: Sequence[Figure]) -> str:
    """One row per figure; empty columns are left out."""
    has_series = any(figure.series for figure in figures)
    has_target = any(figure.target for figure in figures)
    head = ["on"] * has_series + ["figure", "median", "min–max"] + ["target", ""] * has_target
    rows = []
    for figure in figures:
        row = [figure.series] * has_series + [figure.label, number(figure.median), figure.spread]
        rows.append(row + [_target(figure), _verdict(figure)] * has_target)
    return markdown(head, rows)


def comparison(figures: Sequence[Figure]) -> str:
    """One row per name, one column per series: median and spread."""
    columns = list(dict.fromkeys(figure.series for figure in figures))
    cells = {(figure.label, figure.series): figure for figure in figures}
    rows = [
        [label, *(_cell(cells.get((label, column))) for column in columns)]
        for label in dict.fromkeys(figure.label for figure in figures)
    ]
    return markdown(["figure", *columns], rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write_report(
    folder: Path,
    name: str,
    figures: Sequence[Figure],
    *,
    layout: Callable[[Sequence[Figure]], str] = table,
    about: Mapping[str, Any] | None = None,
) -> str:
    """Write ``<name>.md`` and ``<name>.json``; returns the Markdown. ``about``: machine, settings, date."""
    about = about or {}
    notes = "".join(f"- {key}: {value}\n" for key, value in about.items())
    text = "\n".join(filter(None, [notes, layout(figures) + "\n"]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    document = {"about": about, "figures": [as_json(figure) for figure in figures]}
    encoded = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / f"{name}.json").write_text(encoded + "\n", encoding="utf-8")
    return text


def as_json(figure: Figure) -> dict[str, Any]:
    """The figure as JSON, which has no NaN: a missing measurement is null."""
    return {
        "name": figure.name,
        "unit": figure.unit,
        "series": figure.series,
        "median": _or_null(figure.median),
        "min": _or_null(figure.low),
        "max": _or_null(figure.high),
        "values": [_or_null(value) for value in figure.values],
        "target": None if figure.target is None else str(figure.target),
        "met": figure.met,
    }


def _or_null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _target(figure: Figure) -> str:
    return "" if figure.target is None else str(figure.target)


def _verdict(figure: Figure) -> str:
    return {None: "", True: "met", False: "**not met**"}[figure.met]


def _cell(figure: Figure | None) -> str:
    return "" if figure is None else f"{number(figure.median)} ({figure.spread})"


# ---- plots -----------------------------------------------------------------------------------------------


def plot_bars(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Plot a group of bars per name and a colour per series; whiskers reach from the lowest to the highest
    repeat.

    Raises:
        ValueError: the figures have more than one unit.
    """
    units = {figure.unit for figure in figures}
    if len(units) != 1:
        raise ValueError(f"one unit labels the axis, not {sorted(units)}")
    names = list(dict.fromkeys(figure.name for figure in figures))
    series = list(dict.fromkeys(figure.series for figure in figures))
    width = 0.8 / len(series)
    sheet, axes = _sheet(title)
    for index, which in enumerate(series):
        members = [figure for figure in figures if figure.series == which]
        places = [names.index(figure.name) + (index - (len(series) - 1) / 2) * width for figure in members]
        heights = [figure.median for figure in members]
        below = [figure.median - figure.low for figure in members]
        above = [figure.high - figure.median for figure in members]
        colour = COLOURS[index % len(COLOURS)]
        bars = axes.bar(
            places, heights, 0.9 * width, yerr=[below, above], capsize=3, color=colour, label=which
        )
        axes.bar_label(bars, [number(height) for height in heights], padding=2, fontsize=8)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(units.pop())
    axes.margins(y=0.12)
    axes.grid(axis="y", alpha=0.3)
    _save(sheet, path, with_legend=len(series) > 1)


def plot_lines(
    path: Path,
    title: str,
    x_label: str,
    y_label: str,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    log_x: bool = False,
) -> None:
    """Plot a line with markers per curve; labels should name their units."""
    from matplotlib.ticker import LogLocator

    sheet, axes = _sheet(title)
    for index, (name, points) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        marker = "o" if len(points) <= 30 else None
        axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, color=colour, label=name)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    _save(sheet, path, with_legend=len(curves) > 1)


def plot_cdf(
    path: Path, title: str, x_label: str, samples: Mapping[str, Sequence[float]], *, log_x: bool = False
) -> None:
    """Plot the cumulative distribution of samples."""
    curves = {name: cdf(values) for name, values in samples.items()}
    plot_lines(path, title, x_label, "share of samples, %", curves, log_x=log_x)


def cdf(values: Sequence[float]) -> list[tuple[float, float]]:
    """Points (value, percent of the values at most that), ready for a plot."""
    shares = accumulate([100 / len(values)] * len(values))
    return list(zip(sorted(values), shares, strict=True))


def _sheet(title: str) -> tuple[Any, Any]:
    """A figure and its axes, without pyplot: no global state, no display."""
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    axes = sheet.subplots()
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    return sheet, axes


def _save(sheet: Any, path: Path, *, with_legend: bool) -> None:
    if with_legend:
        sheet.legend(loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path, format="png")
