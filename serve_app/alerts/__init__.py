"""Alerts: rules over the latency monitor's windows (``registry.py`` lists them), and which of them fire."""

from serve_app.alerts.contract import Rule
from serve_app.alerts.registry import rules_of
from serve_app.alerts.watch import AlertWatch, Change, Standing

__all__ = ["AlertWatch", "Change", "Rule", "Standing", "rules_of"]
