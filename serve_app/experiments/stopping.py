"""When an experiment ends by itself."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from serve_app.experiments.figures import ArmFigures
from serve_app.monitoring.histogram import Histogram
from serve_app.settings.experiments import CONTROL, StopSettings

SURE = 2.5
"""Standard errors by which a limit must be passed: an arm is judged every few seconds for days."""

TAIL = 0.05
"""The share of values above a p95."""

WORSE = "worse"


def reason_to_stop(
    rules: StopSettings, arms: Mapping[str, ArmFigures], verdicts: Mapping[str, str]
) -> str | None:
    """Why the experiment must end, in words; ``None``: it goes on. ``arms``: with the control; ``verdicts``:
    on an arm's answers, where some are judged."""
    control = arms.get(CONTROL)
    for name, arm in arms.items():
        if name == CONTROL:
            continue
        if rules.worse and verdicts.get(name) == WORSE:
            return f"the verdict on the answers of {name} is `{WORSE}`"
        if control is None:
            continue
        found = _errors(rules, name, arm, control) or _tails(rules, name, arm, control)
        if found is not None:
            return found
    return None


def _errors(rules: StopSettings, name: str, arm: ArmFigures, control: ArmFigures) -> str | None:
    if rules.error_share is None or min(arm.requests, control.requests) < rules.min_requests:
        return None
    excess = arm.error_share - control.error_share
    together = (arm.failed + control.failed) / (arm.requests + control.requests)
    noise = sqrt(together * (1 - together) * (1 / arm.requests + 1 / control.requests))
    if excess <= max(rules.error_share, SURE * noise):
        return None
    return f"{arm.error_share:.1%} of {name} failed, of {CONTROL} {control.error_share:.1%}"


def _tails(rules: StopSettings, name: str, arm: ArmFigures, control: ArmFigures) -> str | None:
    for what, ratio, of_arm, of_control in (
        ("time to first token", rules.ttft_p95_ratio, arm.ttft, control.ttft),
        ("whole time", rules.e2e_p95_ratio, arm.e2e, control.e2e),
    ):
        if ratio is None or min(of_arm.count, of_control.count) < rules.min_requests:
            continue
        usual = of_control.percentiles(1 - TAIL)[0]
        above = share_above(of_arm, ratio * usual)
        if above > TAIL + SURE * sqrt(TAIL * (1 - TAIL) / of_arm.count):
            ms = of_arm.percentiles(1 - TAIL)[0]
            return f"the p95 of the {what} is {ms:.0f} ms with {name}, {usual:.0f} ms with {CONTROL}"
    return None


def share_above(histogram: Histogram, milliseconds: float) -> float:
    """The share of values above a limit, as exact as the histogram is."""
    limit = Histogram()
    limit.add(milliseconds)
    bucket = next(iter(limit.buckets))
    return sum(number for each, number in histogram.buckets.items() if each > bucket) / histogram.count
