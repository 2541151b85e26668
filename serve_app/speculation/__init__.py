"""Speculative decoding that never hurts: what it gains, what it costs, and how deep it should draft."""

from serve_app.speculation.cost import StepCost, StepTimes
from serve_app.speculation.guard import GuardPolicy, GuardState, Sample, begin, decide
from serve_app.speculation.speed_up import acceptance_rate, expected_tokens, speed_up

__all__ = [
    "GuardPolicy",
    "GuardState",
    "Sample",
    "StepCost",
    "StepTimes",
    "acceptance_rate",
    "begin",
    "decide",
    "expected_tokens",
    "speed_up",
]
