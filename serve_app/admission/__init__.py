"""Which requests go to an engine now, which wait, and which are refused: pure policy, no clock, no tasks."""

from serve_app.admission.costs import NOTHING, Spent
from serve_app.admission.drain import DrainRate
from serve_app.admission.fairness import FairQueues, most_for_one, reserved
from serve_app.admission.priority_queue import PriorityQueue, Ticket
from serve_app.request.priority import (
    DEFAULT_PRIORITY,
    FIRST_PRIORITY,
    LAST_PRIORITY,
    PRIORITY_FIELD,
    body_priority,
    request_priority,
)

__all__ = [
    "DEFAULT_PRIORITY",
    "FIRST_PRIORITY",
    "LAST_PRIORITY",
    "NOTHING",
    "PRIORITY_FIELD",
    "DrainRate",
    "FairQueues",
    "PriorityQueue",
    "Spent",
    "Ticket",
    "body_priority",
    "most_for_one",
    "request_priority",
    "reserved",
]
