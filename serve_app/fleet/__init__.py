"""A gateway's view of the members: their state, load and pace."""

from serve_app.fleet.health import Health, Probe
from serve_app.fleet.members import EngineReport, EngineState, Member, PrefillCounts
from serve_app.fleet.table import UNREACHABLE_S, Dispatch, FleetTable

__all__ = [
    "UNREACHABLE_S",
    "Dispatch",
    "EngineReport",
    "EngineState",
    "FleetTable",
    "Health",
    "Member",
    "PrefillCounts",
    "Probe",
]
