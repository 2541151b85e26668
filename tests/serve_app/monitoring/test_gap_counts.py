"""The gaps of streams are in the windows one by one, and in the metric as a histogram's buckets."""

from __future__ import annotations

import pytest
from support.meter import Meter

from serve_app.monitoring import Slice
from serve_app.monitoring.gap_counts import BOUNDS, GapCounts
from serve_app.request.gaps import Gaps

SERIES = ("m", "answered", "itl")
GAPS_MS = (9, 9, 40, 70_000)


def a_stream() -> Gaps:
    gaps, now = Gaps(stamps=[1]), 1
    for gap in GAPS_MS:
        now += gap * 1_000_000
        gaps.stamps.append(now)
    return gaps


def test_gaps_are_in_the_window_one_by_one() -> None:
    counts, opened = GapCounts(), Slice()
    counts.add(a_stream(), opened, SERIES)
    counts.add(a_stream(), opened, SERIES)
    found = opened.histograms[SERIES]
    assert found.count == 2 * len(GAPS_MS)
    assert found.mean == pytest.approx(sum(GAPS_MS) / len(GAPS_MS))
    assert found.percentiles(0.5, 0.75) == [pytest.approx(9, rel=0.011), pytest.approx(40, rel=0.011)]


def test_the_metric_has_what_came_within_each_bound_since_the_last_report() -> None:
    counts, meter = GapCounts(), Meter()
    counts.add(a_stream(), Slice(), SERIES)
    counts.report(meter)
    told = {le: number for (_, le), number in meter.values["promptly_itl_pieces"].items()}
    assert "0.0075" not in told
    assert (told["0.01"], told["0.03"], told["0.05"], told["60"], told["+Inf"]) == (2, 2, 3, 3, 4)
    assert set(told) <= set(BOUNDS)
    counts.report(meter)
    assert meter.values["promptly_itl_pieces"]["m", "+Inf"] == 4


def test_a_stream_of_one_piece_counts_nothing() -> None:
    counts, opened, meter = GapCounts(), Slice(), Meter()
    counts.add(Gaps(stamps=[1]), opened, SERIES)
    counts.report(meter)
    assert not opened.histograms
    assert not meter.values
