"""Rules about how long answers take."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.alerts.contract import Read, Rule
from serve_app.monitoring import Figures
from serve_app.monitoring.figures import ANSWERED
from serve_app.monitoring.metrics import DURATIONS
from serve_app.settings.alerts import AlertSettings

OF_ENGINES = f'{{outcome="{ANSWERED}"}}'
"""PromQL: hits of the cache would hide a slow engine, and refusals are quick."""

NAMES = {"ttft": "time to first token", "e2e": "time from arrival to the last byte"}


def percentile_rules(settings: AlertSettings) -> Iterator[Rule]:
    for measure, percent, limit, least in (
        ("ttft", 95, settings.ttft_p95_ms, settings.min_requests),
        ("ttft", 99, settings.ttft_p99_ms, settings.min_requests_p99),
        ("e2e", 95, settings.e2e_p95_ms, settings.min_requests),
        ("e2e", 99, settings.e2e_p99_ms, settings.min_requests_p99),
    ):
        if limit is not None:
            yield Rule(
                name=f"{measure}_p{percent}",
                summary=f"The p{percent} of the {NAMES[measure]} is high.",
                unit="ms",
                limit=limit,
                clears_at=limit * settings.clear_share,
                read=_percentile(measure, percent / 100, least),
                value=quantile(measure, percent / 100, "5m"),
                enough=f"{samples(measure, '5m')} >= {least}",
                scale=0.001,
            )


def rise_rules(settings: AlertSettings) -> Iterator[Rule]:
    limit = settings.p50_rise
    if limit is None:
        return
    least, least_ms = settings.min_requests, settings.p50_rise_above_ms

    def read(figures: Figures, model: str) -> float | None:
        new, long = figures.histogram("5m", model, "ttft"), figures.histogram("30m", model, "ttft")
        if new.count < least or long.count - new.count < least:
            return None
        (p50,), (usual,) = new.percentiles(0.5), long.percentiles(0.5)
        return p50 / usual if p50 >= least_ms else 0.0

    yield Rule(
        name="ttft_p50_rise",
        summary="The median time to first token has risen against that of the last half hour.",
        unit="times",
        limit=limit,
        clears_at=max(1.0, limit * settings.clear_share),
        read=read,
        value=f"{quantile('ttft', 0.5, '5m')} / {quantile('ttft', 0.5, '30m')}",
        enough=f"{samples('ttft', '5m')} >= {least} "
        f"and {samples('ttft', '30m')} - {samples('ttft', '5m')} >= {least} "
        f"and {quantile('ttft', 0.5, '5m')} >= {least_ms / 1000:g}",
    )


def quantile(measure: str, share: float, window: str) -> str:
    """PromQL for a percentile of the answered requests by model, in seconds."""
    metric = DURATIONS[measure].exported
    return f"histogram_quantile({share:g}, sum by (le, model) (rate({metric}_bucket{OF_ENGINES}[{window}])))"


def samples(measure: str, window: str) -> str:
    return f"sum by (model) (increase({DURATIONS[measure].exported}_count{OF_ENGINES}[{window}]))"


def _percentile(measure: str, share: float, least: int) -> Read:
    def read(figures: Figures, model: str) -> float | None:
        histogram = figures.histogram("5m", model, measure)
        return histogram.percentiles(share)[0] if histogram.count >= least else None

    return read
