"""From one config to another while the application runs: what changes, and what that needs."""

from serve_app.upgrades.changes import ENGINES_START, Change, Effect, changes
from serve_app.upgrades.history import HAS_RUN, Document, History, differing_keys, taken_back, told_keys
from serve_app.upgrades.needs import rolling_problems, told_needs
from serve_app.upgrades.versions import engine_deployments, part_versions

__all__ = [
    "ENGINES_START",
    "HAS_RUN",
    "Change",
    "Document",
    "Effect",
    "History",
    "changes",
    "differing_keys",
    "engine_deployments",
    "part_versions",
    "rolling_problems",
    "taken_back",
    "told_keys",
    "told_needs",
]
