"""Windows hold what is as old as they say, in bounded memory, and add up over gateways."""

from __future__ import annotations

import pytest

from serve_app.monitoring import Figures, Slice, Windows
from serve_app.monitoring.windows import MOST_MODELS, OTHER, WINDOWS

SERIES = ("m", "answered", "ttft")


def seen(windows: Windows, now: float) -> dict[str, int]:
    return {name: count(each) for name, each in windows.read(now).items()}


def count(each: Slice) -> int:
    histogram = each.histograms.get(SERIES)
    return 0 if histogram is None else histogram.count


def test_a_sample_leaves_each_window_when_it_is_too_old() -> None:
    windows = Windows(0.0)
    windows.observe(1.0, *SERIES, 5.0)
    assert seen(windows, 1.0) == {"1m": 1, "5m": 1, "30m": 1}
    assert seen(windows, 60.0) == {"1m": 1, "5m": 1, "30m": 1}
    assert seen(windows, 75.0) == {"1m": 0, "5m": 1, "30m": 1}
    assert seen(windows, 315.0) == {"1m": 0, "5m": 0, "30m": 1}
    assert seen(windows, 1870.0) == {"1m": 0, "5m": 0, "30m": 0}


def test_under_load_a_window_holds_its_length_and_at_most_a_slice_more() -> None:
    windows = Windows(0.0)
    for second in range(4000):
        windows.observe(float(second), *SERIES, 5.0)
        windows.count(float(second), "m", "requests")
    found = windows.read(3999.0)
    for name, (length_s, slice_s) in WINDOWS.items():
        assert length_s <= count(found[name]) <= length_s + slice_s + 6
        assert found[name].counts["m", "requests"] == count(found[name])
        assert found[name].covered_s == length_s


def test_a_pause_of_hours_empties_every_window() -> None:
    windows = Windows(0.0)
    windows.observe(1.0, *SERIES, 5.0)
    windows.count(1.0, "m", "requests")
    for each in windows.read(90_000.0).values():
        assert (each.histograms, each.counts) == ({}, {})


def test_a_clock_that_goes_back_loses_nothing() -> None:
    windows = Windows(1000.0)
    windows.observe(1001.0, *SERIES, 5.0)
    windows.observe(10.0, *SERIES, 5.0)
    assert seen(windows, 10.0)["1m"] == 2
    assert windows.read(10.0)["1m"].covered_s == 0.0


def test_ten_thousand_names_make_a_bounded_number_of_series() -> None:
    windows = Windows(0.0)
    for number in range(10_000):
        windows.observe(0.0, f"m{number}", "answered", "ttft", 5.0)
        windows.count(0.0, f"m{number}", "requests")
    found = windows.read(0.0)["1m"]
    assert len(found.histograms) == len(found.counts) == MOST_MODELS + 1
    assert found.counts[OTHER, "requests"] == 10_000 - MOST_MODELS


def test_the_figures_of_two_gateways_are_those_of_one_that_saw_everything() -> None:
    one, other, both = Windows(0.0), Windows(0.0), Windows(0.0)
    for value in range(1, 401):
        for windows in (one if value % 3 else other, both):
            windows.observe(1.0, *SERIES, float(value))
            windows.count(1.0, "m", "hits", value)
    merged = Figures.of_states(one.read(2.0), [Figures(other.read(2.0)).encoded()])
    assert merged.shown() == Figures(both.read(2.0)).shown()
    shown = merged.shown()["5m"]["models"]["m"]
    ttft = shown["outcomes"]["answered"]["ttft"]
    assert (ttft["count"], ttft["mean"]) == (400, 200.5)
    assert ttft["p99"] == pytest.approx(396, rel=0.0101)
    assert shown["counts"] == {"hits": sum(range(1, 401))}


def test_all_models_and_outcomes_are_shown_together_too() -> None:
    windows = Windows(0.0)
    windows.observe(0.0, "a", "answered", "e2e", 10.0)
    windows.observe(0.0, "a", "cached", "e2e", 10.0)
    windows.observe(0.0, "b", "answered", "e2e", 10.0)
    models = Figures(windows.read(0.0)).shown()["1m"]["models"]
    counts = {
        (model, outcome): measures["e2e"]["count"]
        for model, of_model in models.items()
        for outcome, measures in of_model["outcomes"].items()
    }
    assert counts == {
        ("a", "answered"): 1,
        ("a", "cached"): 1,
        ("a", "all"): 2,
        ("b", "answered"): 1,
        ("b", "all"): 1,
        ("all", "answered"): 2,
        ("all", "cached"): 1,
        ("all", "all"): 3,
    }


def test_reading_does_not_change_what_is_kept() -> None:
    windows = Windows(0.0)
    windows.observe(0.0, *SERIES, 5.0)
    windows.read(0.0)["1m"].histograms[SERIES].add(7.0)
    assert seen(windows, 0.0)["1m"] == 1


def test_counts_that_cancel_each_other_leave_with_their_slices() -> None:
    windows = Windows(0.0)
    for at, number in ((1.0, 5), (11.0, 0)):
        windows.open(at, "m")[0].count(("m", "tokens"), number)
    opened, _ = windows.open(21.0, "m")
    opened.count(("m", "tokens"), -5)
    opened.count(("m", "requests"), 1)
    for each in windows.read(90_000.0).values():
        assert each.counts == {}
