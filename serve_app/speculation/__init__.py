"""Speculative decoding that never hurts: what it gains, what it costs, and how deep it should draft."""

from serve_app.speculation.cost import StepCost, StepTimes
from serve_app.speculation.guard import GuardPolicy, GuardState, Sample, begin, decide
from serve_app.speculation.meter import SpeculationMeter, SpeculationReport, StepCounts
from serve_app.speculation.speed_up import acceptance_rate, expected_tokens, speed_up
from serve_app.speculation.watch import Guard

__all__ = [
    "Guard",
    "GuardPolicy",
    "GuardState",
    "Sample",
    "SpeculationMeter",
    "SpeculationReport",
    "StepCost",
    "StepCounts",
    "StepTimes",
    "acceptance_rate",
    "begin",
    "decide",
    "expected_tokens",
    "speed_up",
]
