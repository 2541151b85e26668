"""What is measured of each arm of an experiment, in a sliding window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from serve_app.monitoring.histogram import Histogram

PARTS = 6
"""Parts of a window: the oldest is dropped whole, so a window is at least five sixths of its length."""

ArmKey = tuple[str, str]
"""An experiment and one of its arms."""


class ArmState(msgspec.Struct, frozen=True):
    """An arm's figures as another gateway gets them; histograms as their buckets."""

    experiment: str
    arm: str
    requests: int
    failed: int
    ttft: dict[int, int]
    e2e: dict[int, int]


class ArmFigures:
    """Requests that an engine answered or that failed; those that the cache answered are not the arm's."""

    __slots__ = ("e2e", "failed", "requests", "ttft")

    def __init__(self) -> None:
        self.requests = 0
        self.failed = 0
        self.ttft, self.e2e = Histogram(), Histogram()

    @classmethod
    def of(cls, state: ArmState) -> Self:
        made = cls()
        made.requests, made.failed = state.requests, state.failed
        made.ttft, made.e2e = Histogram(dict(state.ttft)), Histogram(dict(state.e2e))
        return made

    def state(self, key: ArmKey) -> ArmState:
        return ArmState(*key, self.requests, self.failed, dict(self.ttft.buckets), dict(self.e2e.buckets))

    @property
    def error_share(self) -> float:
        return self.failed / self.requests if self.requests else 0.0

    def add(self, *, failed: bool, ttft_ms: float | None, e2e_ms: float) -> None:
        self.requests += 1
        if failed:
            self.failed += 1
            return
        self.e2e.add(e2e_ms)
        if ttft_ms is not None:
            self.ttft.add(ttft_ms)

    def merge(self, other: ArmFigures) -> None:
        self.requests += other.requests
        self.failed += other.failed
        self.ttft.merge(other.ttft)
        self.e2e.merge(other.e2e)


class ArmWindow:
    """The newest ``window_s`` seconds of one arm."""

    def __init__(self, window_s: float) -> None:
        self._part_s = window_s / PARTS
        self._parts: list[tuple[int, ArmFigures]] = []

    def open(self, now: float) -> ArmFigures:
        """Where what is measured now counts."""
        number = int(now / self._part_s)
        if not self._parts or self._parts[-1][0] < number:
            self._parts.append((number, ArmFigures()))
            self._parts = [part for part in self._parts if part[0] > number - PARTS]
        return self._parts[-1][1]

    def read(self, now: float) -> ArmFigures:
        self.open(now)
        return merged(figures for _, figures in self._parts)


def merged(figures: Iterable[ArmFigures]) -> ArmFigures:
    together = ArmFigures()
    for each in figures:
        together.merge(each)
    return together


def with_others(own: Mapping[ArmKey, ArmFigures], others: Iterable[ArmState]) -> dict[ArmKey, ArmFigures]:
    """The figures of several gateways together; arms that are not among ``own`` are left out."""
    together = dict(own)
    for state in others:
        key = (state.experiment, state.arm)
        if key in together:
            together[key] = merged((together[key], ArmFigures.of(state)))
    return together
