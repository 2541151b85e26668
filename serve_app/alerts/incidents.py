"""Rules about single things that should not happen often."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.alerts.contract import Read, Rule
from serve_app.monitoring import Figures
from serve_app.monitoring.metrics import LOOPS, RUNAWAY, STALLED, Metric
from serve_app.settings.alerts import AlertSettings


def incident_rules(settings: AlertSettings) -> Iterator[Rule]:
    incidents: tuple[tuple[str, int | None, Metric, str], ...] = (
        (
            "stalled_streams",
            settings.stalled_streams,
            STALLED,
            "Streams are cut because engines send nothing any more (limits.between_tokens_timeout_s).",
        ),
        (
            "runaway_generations",
            settings.runaway_generations,
            RUNAWAY,
            "Answers are very long (alerts.runaway_tokens): a model may not find its end.",
        ),
        (
            "looping_sessions",
            settings.looping_sessions,
            LOOPS,
            "Sessions repeat the same last message: an agent may be in a loop (alerts.loop_requests).",
        ),
    )
    for name, number, metric, summary in incidents:
        if number is not None:
            yield Rule(
                name=name,
                summary=summary,
                unit="in 5 minutes",
                limit=number - 0.5,  # `number` of them fire, one less clear
                clears_at=number - 0.5,
                at_least=float(number),
                read=_counted(name),
                value=grown(metric),
                enough="",
            )


def grown(metric: Metric) -> str:
    """PromQL: what was counted in 5 minutes. `increase()` would miss the first of all, which makes the
    series. Of each series by itself: the one of a gateway that is gone takes nothing away from the others."""
    name = metric.exported
    return f"sum by (model) (clamp_min({name} - ({name} offset 5m or {name} * 0), 0))"


def _counted(name: str) -> Read:
    def read(figures: Figures, model: str) -> float | None:
        return float(figures.counted("5m", model, name))

    return read
