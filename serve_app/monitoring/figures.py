"""The windows of one or several gateways, as they are shown and as alerts read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

from serve_app.monitoring.histogram import Histogram
from serve_app.monitoring.windows import WINDOWS, Slice, SliceState

SHARES = (0.50, 0.90, 0.95, 0.99)

ANSWERED = "answered"

ALL = "all"
"""Stands for all models, or all outcomes, together."""


class Figures:
    """Figures by window: the sum of all gateways that gave theirs."""

    def __init__(self, slices: Mapping[str, Slice]) -> None:
        self._slices = slices

    @classmethod
    def of_states(cls, own: Mapping[str, Slice], others: Sequence[bytes]) -> Self:
        """``own`` slices, to which those of other gateways (see :meth:`encoded`) are added.

        Raises:
            msgspec.DecodeError, msgspec.ValidationError: these are no bytes of :meth:`encoded`.
        """
        merged = dict(own)
        for other in others:
            for name, state in _DECODER.decode(other).items():
                if name in merged:
                    merged[name].merge(Slice.of(state))
        return cls(merged)

    def encoded(self) -> bytes:
        """What another gateway adds to its own."""
        return msgspec.msgpack.encode({name: each.state for name, each in self._slices.items()})

    @property
    def models(self) -> tuple[str, ...]:
        """That anything was measured of in the longest window."""
        longest = self._slices["30m"]
        names = {series[0] for series in longest.histograms} | {key[0] for key in longest.counts}
        return tuple(sorted(names))

    def histogram(self, window: str, model: str, measure: str) -> Histogram:
        """Times of requests that an engine answered: hits of the cache would hide a slow engine."""
        return self._slices[window].histograms.get((model, ANSWERED, measure)) or Histogram()

    def counted(self, window: str, model: str, name: str) -> int:
        return self._slices[window].counts.get((model, name), 0)

    def covered_s(self, window: str) -> float:
        """How long was measured, at most the window's length."""
        return self._slices[window].covered_s

    def shown(self) -> dict[str, Any]:
        """The measures of each window, model and outcome, in milliseconds, and each model's counts."""
        return {name: self._shown(each) for name, each in self._slices.items()}

    def _shown(self, each: Slice) -> dict[str, Any]:
        measured: dict[str, dict[str, dict[str, Histogram]]] = {}
        for (model, outcome, measure), histogram in each.histograms.items():
            for of in (model, ALL):
                for by in (outcome, ALL):
                    of_outcome = measured.setdefault(of, {}).setdefault(by, {})
                    of_outcome.setdefault(measure, Histogram()).merge(histogram)
        counts: dict[str, dict[str, int]] = {}
        for (model, name), number in each.counts.items():
            for of in (model, ALL):
                of_model = counts.setdefault(of, {})
                of_model[name] = of_model.get(name, 0) + number
        return {
            "covered_s": round(each.covered_s, 1),
            "models": {
                model: {
                    "counts": counts.get(model, {}),
                    "outcomes": {
                        outcome: {measure: summary(histogram) for measure, histogram in measures.items()}
                        for outcome, measures in measured.get(model, {}).items()
                    },
                }
                for model in sorted(measured.keys() | counts.keys())
            },
        }


def summary(histogram: Histogram) -> dict[str, float]:
    """Milliseconds, with the number of samples."""
    found = histogram.percentiles(*SHARES)
    values = {f"p{share * 100:.0f}": round(value, 3) for share, value in zip(SHARES, found, strict=True)}
    return {"count": histogram.count, "mean": round(histogram.mean, 3), **values}


_DECODER = msgspec.msgpack.Decoder(dict[str, SliceState])

__all__ = ["ALL", "SHARES", "WINDOWS", "Figures", "summary"]
