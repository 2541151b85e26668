"""Rules about answers that become other answers: by a sample of them, those that are captured."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.alerts.contract import Read, Rule
from serve_app.monitoring import Figures
from serve_app.monitoring.metrics import (
    JUDGED,
    JUDGED_POINTS,
    OTHER_LANGUAGE,
    REFUSALS,
    SAMPLED,
    SAMPLED_CHARS,
    Metric,
)
from serve_app.settings.alerts import AlertSettings

POINTS = 1000
"""Points of the best score: counts are whole numbers."""


def drift_rules(settings: AlertSettings) -> Iterator[Rule]:
    rises = (
        ("refusal_rise", settings.refusal_rise, REFUSALS, "Models refuse more than in the last half hour."),
        (
            "language_rise",
            settings.language_rise,
            OTHER_LANGUAGE,
            "More answers than in the last half hour are in another language than their questions.",
        ),
    )
    for name, limit, metric, summary in rises:
        if limit is not None:
            yield Rule(
                name=name,
                summary=summary,
                unit="share",
                limit=limit,
                clears_at=limit * settings.clear_share,
                read=_rise(metric, settings.min_requests),
                value=f"{_share(metric, '5m')} - {_share(metric, '30m')}",
                enough=_enough(settings.min_requests),
            )
    drop = settings.score_drop
    if drop is not None:
        usual, new = (_mean_score(window) for window in ("30m", "5m"))
        yield Rule(
            name="score_drop",
            summary="The judge model grades answers lower than in the last half hour.",
            unit="score",
            limit=drop,
            clears_at=drop * settings.clear_share,
            read=_drop(settings.min_requests),
            value=f"{usual} - {new}",
            enough=_enough(settings.min_requests, JUDGED),
        )
    change = settings.length_change
    if change is not None:
        new, usual = (
            f"{_increase(SAMPLED_CHARS, window)} / {_increase(SAMPLED, window)}" for window in ("5m", "30m")
        )
        yield Rule(
            name="length_change",
            summary="Answers are far longer or shorter than in the last half hour.",
            unit="times",
            limit=change,
            clears_at=max(1.0, change * settings.clear_share),
            read=_change(settings.min_requests),
            value=f"exp(abs(ln(({new}) / ({usual}))))",
            enough=_enough(settings.min_requests),
        )


def _rise(metric: Metric, least: int) -> Read:
    def read(figures: Figures, model: str) -> float | None:
        new, long = _sampled(figures, model)
        if new < least or long - new < least:
            return None
        few, many = (figures.counted(window, model, NAMES[metric]) for window in ("5m", "30m"))
        return few / new - many / long

    return read


def _drop(least: int) -> Read:
    def read(figures: Figures, model: str) -> float | None:
        new, long = _sampled(figures, model, JUDGED)
        if new < least or long - new < least:
            return None
        points, usual = (figures.counted(window, model, NAMES[JUDGED_POINTS]) for window in ("5m", "30m"))
        return (usual / long - points / new) / POINTS

    return read


def _change(least: int) -> Read:
    def read(figures: Figures, model: str) -> float | None:
        new, long = _sampled(figures, model)
        chars, usual = (figures.counted(window, model, NAMES[SAMPLED_CHARS]) for window in ("5m", "30m"))
        if new < least or long - new < least or not chars or not usual:
            return None
        times = (chars / new) / (usual / long)
        return max(times, 1 / times)

    return read


NAMES = {
    SAMPLED: "sampled",
    SAMPLED_CHARS: "sampled_chars",
    REFUSALS: "refusals",
    OTHER_LANGUAGE: "other_language",
    JUDGED: "judged",
    JUDGED_POINTS: "judged_points",
}
"""Names of the counts in the windows."""


def _sampled(figures: Figures, model: str, metric: Metric = SAMPLED) -> tuple[int, int]:
    new, long = (figures.counted(window, model, NAMES[metric]) for window in ("5m", "30m"))
    return new, long


def _increase(metric: Metric, window: str) -> str:
    return f"sum by (model) (increase({metric.exported}[{window}]))"


def _share(part: Metric, window: str) -> str:
    """0 where the part has no series yet."""
    whole = _increase(SAMPLED, window)
    return f"({_increase(part, window)} or {whole} * 0) / {whole}"


def _mean_score(window: str) -> str:
    """0 where all scores are: their points have no series then."""
    whole = _increase(JUDGED, window)
    return f"({_increase(JUDGED_POINTS, window)} or {whole} * 0) / {whole} / {POINTS}"


def _enough(least: int, metric: Metric = SAMPLED) -> str:
    new, long = (_increase(metric, window) for window in ("5m", "30m"))
    return f"{new} >= {least} and {long} - {new} >= {least}"
