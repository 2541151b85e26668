"""Experiments: which arm a request gets, what an arm changes, and when an experiment ends by itself."""

from serve_app.experiments.changes import Change
from serve_app.experiments.plan import Asking, Assigned, Plan

__all__ = ["Asking", "Assigned", "Change", "Plan"]
