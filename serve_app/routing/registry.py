"""The policies by their name in settings."""

from __future__ import annotations

from serve_app.routing.base import RegisteredPolicy
from serve_app.routing.least_wait import least_wait
from serve_app.routing.prefix import prefix
from serve_app.routing.round_robin import round_robin
from serve_app.routing.session import session

POLICIES: dict[str, RegisteredPolicy] = {
    "least_wait": RegisteredPolicy(least_wait, keeps_sessions=True),
    "prefix": RegisteredPolicy(prefix, needs_blocks=True, keeps_sessions=True),
    "round_robin": RegisteredPolicy(round_robin),
    "session": RegisteredPolicy(session),
}
