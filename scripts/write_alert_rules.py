"""Write the alert rules for Prometheus from those of the gateways, so that both say the same.

python scripts/write_alert_rules.py [--config FILE] [--output FILE]

Without FILE: the default settings, to config/observability/rules.yml.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from dashboards.options import asked

from serve_app.alerts import Rule, rules_of
from serve_app.monitoring.metrics import EXPERIMENT_STOPPED
from serve_app.settings.alerts import AlertSettings

TARGET = Path(__file__).parents[1] / "config" / "observability" / "rules.yml"
HEAD = """# Alert rules for Prometheus 2.42 or newer, made by `python scripts/write_alert_rules.py` from the
# rules in serve_app/alerts/ and the settings `alerts`; a test fails if this file is out of date. Gateways
# judge the same rules themselves (/admin/alerts).
"""

STOPPED: dict[str, Any] = {
    "alert": "PromptlyExperimentStopped",
    "expr": f"max by (experiment) ({EXPERIMENT_STOPPED.exported}) > 0",
    "labels": {"severity": "warning", "rule": "experiment_stopped"},
    "annotations": {
        "summary": "{{ $labels.experiment }}: The experiment has ended by itself; a gateway's log says why.",
    },
}
"""Gateways judge experiments by themselves: this only tells."""


def rules_file(settings: AlertSettings) -> str:
    """The file's text."""
    group = {
        "name": "promptly",
        "interval": f"{settings.period_s:g}s",
        "rules": [*(alerting(rule, settings) for rule in rules_of(settings)), STOPPED],
    }
    return HEAD + yaml.safe_dump({"groups": [group]}, sort_keys=False, width=110)


def alerting(rule: Rule, settings: AlertSettings) -> dict[str, Any]:
    exceeded = f"{rule.value} > {rule.limit * rule.scale:g}"
    return {
        "alert": alert_name(rule),
        "expr": f"{exceeded} and {rule.enough}" if rule.enough else exceeded,
        "for": f"{settings.hold_s:g}s",
        "keep_firing_for": f"{settings.clear_s:g}s",
        "labels": {"severity": "warning", "rule": rule.name},
        "annotations": {
            "summary": f"{{{{ $labels.model }}}}: {rule.summary}",
            "description": f"The value is {{{{ $value | humanize }}}}, the limit "
            f"{rule.said_limit * rule.scale:g} {unit(rule)}.",
        },
    }


def alert_name(rule: Rule) -> str:
    """In Prometheus' own style."""
    return "Promptly" + "".join(word.capitalize() for word in rule.name.split("_"))


def unit(rule: Rule) -> str:
    return "s" if rule.unit == "ms" else rule.unit


def main(arguments: list[str] | None = None) -> int:
    found = asked(arguments, "Write the alert rules for Prometheus.", TARGET)
    if found is None:
        return 1
    settings, target = found
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(rules_file(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
