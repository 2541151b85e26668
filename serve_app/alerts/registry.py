"""All rules of alerts, by their settings. A new one is a function here that gives it, or gives nothing where
its setting turns it off."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from serve_app.alerts.contract import Rule
from serve_app.alerts.drift import drift_rules
from serve_app.alerts.incidents import incident_rules
from serve_app.alerts.latency import percentile_rules, rise_rules
from serve_app.alerts.shares import error_rules, hit_rate_rules, token_rules
from serve_app.settings.alerts import AlertSettings

KINDS: tuple[Callable[[AlertSettings], Iterable[Rule]], ...] = (
    percentile_rules,
    rise_rules,
    hit_rate_rules,
    error_rules,
    token_rules,
    incident_rules,
    drift_rules,
)


def rules_of(settings: AlertSettings) -> tuple[Rule, ...]:
    """Those that the settings ask for, also if ``enabled`` is off."""
    return tuple(rule for kind in KINDS for rule in kind(settings))
