"""Measurements of the last 1, 5 and 30 minutes.

The newest few seconds are one open slice. When it is full it is added to the sum of each window, and the
slices that have become too old are taken away from it. So recording touches one histogram, reading adds up
two, and memory is bounded by the number of slices and series, not of requests."""

from __future__ import annotations

from collections import deque
from typing import Self

import msgspec

from serve_app.monitoring.histogram import Histogram

SLICE_S = 5.0
"""How long the open slice takes. A window is up to that, and one of its own slices, longer than its name."""

WINDOWS = {"1m": (60.0, 5.0), "5m": (300.0, 10.0), "30m": (1800.0, 60.0)}
"""Seconds of each window and of its slices: 72 slices of every series at most."""

OTHER = "other"

MOST_MODELS = 100
"""Models with a series of their own; more share the one that is named ``OTHER``."""

Series = tuple[str, str, str]
"""Model, outcome, measure."""

Count = tuple[str, str]
"""Model and what is counted."""


class SliceState(msgspec.Struct, frozen=True):
    """A slice as another gateway gets it."""

    histograms: list[tuple[str, str, str, dict[int, int], int]]
    counts: list[tuple[str, str, int]]
    covered_s: float


class Slice:
    """Histograms and counts of some time. ``covered_s``: of how much time, where that is known."""

    __slots__ = ("counts", "covered_s", "histograms")

    def __init__(self) -> None:
        self.histograms: dict[Series, Histogram] = {}
        self.counts: dict[Count, int] = {}
        self.covered_s = 0.0

    @classmethod
    def of(cls, state: SliceState) -> Self:
        made = cls()
        for model, outcome, measure, buckets, total_us in state.histograms:
            made.histograms[model, outcome, measure] = Histogram(buckets, total_us)
        for model, name, number in state.counts:
            made.counts[model, name] = number
        made.covered_s = state.covered_s
        return made

    @property
    def state(self) -> SliceState:
        return SliceState(
            [(*series, dict(each.buckets), each.total_us) for series, each in self.histograms.items()],
            [(*key, number) for key, number in self.counts.items()],
            self.covered_s,
        )

    def observe(self, series: Series, milliseconds: float) -> None:
        histogram = self.histograms.get(series)
        if histogram is None:
            histogram = self.histograms[series] = Histogram()
        histogram.add(milliseconds)

    def observe_all(self, series: Series, measured: Histogram) -> None:
        histogram = self.histograms.get(series)
        if histogram is None:
            histogram = self.histograms[series] = Histogram()
        histogram.merge(measured)

    def count(self, key: Count, number: int) -> None:
        self.counts[key] = self.counts.get(key, 0) + number

    def merge(self, other: Slice) -> None:
        for series, histogram in other.histograms.items():
            self.observe_all(series, histogram)
        for key, number in other.counts.items():
            self.count(key, number)
        self.covered_s = max(self.covered_s, other.covered_s)

    def take_away(self, other: Slice) -> None:
        for series, histogram in other.histograms.items():
            known = self.histograms.get(series)
            if known is None:
                continue
            known.take_away(histogram)
            if not known.count:
                del self.histograms[series]
        for key, number in other.counts.items():
            left = self.counts.pop(key, number) - number  # a sum of 0 is kept nowhere
            if left:
                self.counts[key] = left


class _Window:
    """The closed slices of one window, and their sum."""

    def __init__(self, length_s: float, width_s: float) -> None:
        self.length_s = length_s
        self._width_s = width_s
        self._slices: deque[tuple[float, Slice]] = deque()
        self.sum = Slice()

    def add(self, began: float, closed: Slice) -> None:
        if not self._slices or began >= self._slices[-1][0] + self._width_s:
            self._slices.append((began, Slice()))
        self._slices[-1][1].merge(closed)
        self.sum.merge(closed)

    def expire(self, now: float) -> None:
        slices = self._slices
        while slices and slices[0][0] + self._width_s <= now - self.length_s:
            self.sum.take_away(slices.popleft()[1])


class Windows:
    """What one gateway has measured. ``now`` is in seconds of any clock that does not go back; if it does,
    what is measured counts for the newest slice."""

    def __init__(self, now: float) -> None:
        self._began = self._opened = now
        self._open = Slice()
        self._windows = {name: _Window(*shape) for name, shape in WINDOWS.items()}
        self._models: set[str] = set()

    def observe(self, now: float, model: str, outcome: str, measure: str, milliseconds: float) -> None:
        opened, known = self.open(now, model)
        opened.observe((known, outcome, measure), milliseconds)

    def count(self, now: float, model: str, name: str, number: int = 1) -> None:
        if number > 0:
            opened, known = self.open(now, model)
            opened.count((known, name), number)

    def open(self, now: float, model: str) -> tuple[Slice, str]:
        """Where what is measured now counts, and under which name: for several values of one request."""
        self._turn(now)
        return self._open, self._known(model)

    def read(self, now: float) -> dict[str, Slice]:
        """Each window's sum, as copies."""
        self._turn(now)
        return {name: self._sum(window, now) for name, window in self._windows.items()}

    def _sum(self, window: _Window, now: float) -> Slice:
        total = Slice()
        total.merge(window.sum)
        total.merge(self._open)
        total.covered_s = min(window.length_s, max(0.0, now - self._began))
        return total

    def _known(self, model: str) -> str:
        if model in self._models:
            return model
        if len(self._models) >= MOST_MODELS:
            return OTHER
        self._models.add(model)
        return model

    def _turn(self, now: float) -> None:
        """Close the open slice if it is full."""
        if now < self._opened + SLICE_S:
            return
        if self._open.histograms or self._open.counts:
            for window in self._windows.values():
                window.add(self._opened, self._open)
            self._open = Slice()
        self._opened = now
        for window in self._windows.values():
            window.expire(now)
