"""From one config to another while the application runs: what changes, and what that needs."""

from serve_app.upgrades.changes import Change, Effect, changes
from serve_app.upgrades.needs import rolling_problems, told_needs
from serve_app.upgrades.versions import engine_deployments, part_versions

__all__ = [
    "Change",
    "Effect",
    "changes",
    "engine_deployments",
    "part_versions",
    "rolling_problems",
    "told_needs",
]
