"""Rules about shares of the requests, and about how many tokens they take."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.alerts.contract import Rule
from serve_app.monitoring import Figures
from serve_app.monitoring.metrics import ERRORS, HITS, LOOK_UPS, REQUESTS, TOKENS, Metric
from serve_app.settings.alerts import AlertSettings


def hit_rate_rules(settings: AlertSettings) -> Iterator[Rule]:
    limit = settings.hit_rate_drop
    if limit is None:
        return
    least, least_rate = settings.min_requests, settings.hit_rate_min

    def read(figures: Figures, model: str) -> float | None:
        new, long = (figures.counted(window, model, "look_ups") for window in ("5m", "30m"))
        if new < least or long - new < least:
            return None
        usual = figures.counted("30m", model, "hits") / long
        if usual < least_rate:
            return None
        return 1 - figures.counted("5m", model, "hits") / new / usual

    usual = _ratio(HITS, LOOK_UPS, "30m")
    yield Rule(
        name="hit_rate_drop",
        summary="The cache answers far fewer requests than in the last half hour.",
        unit="share",
        limit=limit,
        clears_at=limit * settings.clear_share,
        read=read,
        value=f"1 - ({_ratio(HITS, LOOK_UPS, '5m')}) / ({usual})",
        enough=f"{_increase(LOOK_UPS, '5m')} >= {least} and {_increase(LOOK_UPS, '30m')} - "
        f"{_increase(LOOK_UPS, '5m')} >= {least} and {usual} >= {least_rate:g}",
    )


def error_rules(settings: AlertSettings) -> Iterator[Rule]:
    limit = settings.error_share
    if limit is None:
        return
    least = settings.min_requests

    def read(figures: Figures, model: str) -> float | None:
        requests = figures.counted("5m", model, "requests")
        return figures.counted("5m", model, "errors") / requests if requests >= least else None

    yield Rule(
        name="error_share",
        summary="Many requests fail for reasons that are not the client's.",
        unit="share",
        limit=limit,
        clears_at=limit * settings.clear_share,
        read=read,
        value=_ratio(ERRORS, REQUESTS, "5m"),
        enough=f"{_increase(REQUESTS, '5m')} >= {least}",
    )


def token_rules(settings: AlertSettings) -> Iterator[Rule]:
    limit = settings.token_spike
    if limit is None:
        return
    least = settings.token_spike_min

    def read(figures: Figures, model: str) -> float | None:
        new, long = (figures.counted(window, model, "tokens") for window in ("5m", "30m"))
        if new < least or figures.covered_s("30m") < 1800:
            return None
        return (new / 300) / (long / 1800)

    new, long = (
        f'sum by (model) (rate({TOKENS.exported}{{kind!="cached"}}[{window}]))' for window in ("5m", "30m")
    )
    yield Rule(
        name="token_spike",
        summary="Requests take far more tokens a second than in the last half hour.",
        unit="times",
        limit=limit,
        clears_at=max(1.0, limit * settings.clear_share),
        read=read,
        value=f"{new} / {long}",
        enough=f"{new} * 300 >= {least} and on (model) sum by (model) ({TOKENS.exported} offset 30m) >= 0",
    )


def _increase(metric: Metric, window: str) -> str:
    return f"sum by (model) (increase({metric.exported}[{window}]))"


def _ratio(part: Metric, whole: Metric, window: str) -> str:
    """0 where the part has no series yet."""
    return f"({_increase(part, window)} or {_increase(whole, window)} * 0) / {_increase(whole, window)}"
