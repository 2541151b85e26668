"""What a gateway knows of the engines: members, their state and load."""

from serve_app.fleet.members import EngineReport, EngineState, Member
from serve_app.fleet.table import FleetTable

__all__ = ["EngineReport", "EngineState", "FleetTable", "Member"]
