"""Speculative decoding that never slows an engine down: its gain, its cost, and how deep to draft."""

from serve_app.speculation.cost import StepCost, StepTimes
from serve_app.speculation.drafting import Depths, Drafting, at_depth, nothing
from serve_app.speculation.guard import GuardPolicy, GuardState, Window, begin, decide, drafts, expected
from serve_app.speculation.hindsight import Hindsight
from serve_app.speculation.meter import Sample, SpeculationMeter, SpeculationReport, StepCounts
from serve_app.speculation.watch import Guard

__all__ = [
    "Depths",
    "Drafting",
    "Guard",
    "GuardPolicy",
    "GuardState",
    "Hindsight",
    "Sample",
    "SpeculationMeter",
    "SpeculationReport",
    "StepCost",
    "StepCounts",
    "StepTimes",
    "Window",
    "at_depth",
    "begin",
    "decide",
    "drafts",
    "expected",
    "nothing",
]
