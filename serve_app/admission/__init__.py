"""Who may go to an engine now, who waits, and who is refused: pure policy, no clock, no tasks."""

from serve_app.admission.drain import DrainRate
from serve_app.admission.priority import PRIORITY_HEADER, request_priority
from serve_app.admission.waiting import Ticket, WaitingLine

__all__ = ["PRIORITY_HEADER", "DrainRate", "Ticket", "WaitingLine", "request_priority"]
