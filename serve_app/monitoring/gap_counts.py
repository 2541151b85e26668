"""The gaps between the pieces of streams (ITL), counted by the bounds of the metrics' histograms.

Those take a microsecond or two for each value, too much for each token: these go to a counter every few
seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from serve_app.buckets import middle_ms
from serve_app.monitoring.histogram import Histogram
from serve_app.monitoring.metrics import BUCKETS_S, ITL_PIECES, Meter
from serve_app.monitoring.windows import Series, Slice
from serve_app.request.gaps import Gaps

BOUNDS = (*(f"{bound:g}" for bound in BUCKETS_S), "+Inf")
"""The values of the label ``le``."""


class GapCounts:
    """By model, of the streams since the last report."""

    def __init__(self) -> None:
        self._new: dict[str, list[int]] = {}
        self._bound_of: dict[int, int] = {}

    def add(self, gaps: Gaps, opened: Slice, series: Series) -> None:
        """Those of one stream, to its model's and to the window's ``series``."""
        gaps.count()
        if gaps.buckets:
            opened.observe_all(series, Histogram(gaps.buckets, gaps.total_us))
            self._count(series[0], gaps.buckets)

    def report(self, meter: Meter) -> None:
        """Of each model and bound, how many gaps were no longer than that."""
        new, self._new = self._new, {}
        for model, counts in new.items():
            so_far = 0
            for bound, number in zip(BOUNDS, counts, strict=True):
                so_far += number
                if so_far:
                    meter.add(ITL_PIECES, so_far, {"model": model, "le": bound})

    def _count(self, model: str, buckets: Mapping[int, int]) -> None:
        counts = self._new.get(model)
        if counts is None:
            counts = self._new[model] = [0] * len(BOUNDS)
        bound_of = self._bound_of
        for bucket, number in buckets.items():
            bound = bound_of.get(bucket)
            if bound is None:
                bound = bound_of[bucket] = bisect_left(BUCKETS_S, middle_ms(bucket) / 1000)
            counts[bound] += number
