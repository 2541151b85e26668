"""Figures of a run of the load generator, from its samples: percentiles, counts and rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.load.requests import Sample


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile; NaN without values."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@dataclass(frozen=True)
class Summary:
    """Figures of one run. Times and tokens are those of complete answers."""

    requests: int
    errors: int
    refused: int
    """Answers with the status 429 or 503, which are not errors."""
    tokens: int
    tokens_per_s: float
    """The rate from the first request sent to the end of the last answer."""
    ttft_p50_ms: float
    ttft_p99_ms: float
    chunk_delay_p50_ms: float
    """The delay is a gap between chunks minus the nominal gap, at least 0."""
    chunk_delay_p99_ms: float
    late_p99_ms: float
    """For an open loop: if this is not small, the generator could not keep up."""


def summarise(samples: Sequence[Sample], itl_s: float = 0.0) -> Summary:
    """``itl_s`` is the engine's nominal time between tokens, in seconds."""
    good = [sample for sample in samples if sample.ok]
    delays = [max(0.0, gap - itl_s) * 1000 for sample in good for gap in sample.gaps_s]
    ttfts = [sample.ttft_s * 1000 for sample in good if sample.ttft_s is not None]
    tokens = sum(sample.tokens for sample in good)
    span = max((sample.ended_at for sample in good), default=math.nan) - min(
        (sample.sent_at for sample in samples), default=math.nan
    )
    return Summary(
        requests=len(samples),
        errors=sum(sample.failed for sample in samples),
        refused=sum(sample.refused for sample in samples),
        tokens=tokens,
        tokens_per_s=tokens / span,
        ttft_p50_ms=percentile(ttfts, 50),
        ttft_p99_ms=percentile(ttfts, 99),
        chunk_delay_p50_ms=percentile(delays, 50),
        chunk_delay_p99_ms=percentile(delays, 99),
        late_p99_ms=percentile((sample.late_s * 1000 for sample in samples), 99),
    )
