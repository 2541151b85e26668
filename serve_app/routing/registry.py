"""The policies by the name that settings use."""

from __future__ import annotations

from serve_app.routing.base import RoutingPolicy
from serve_app.routing.least_loaded import least_loaded

POLICIES: dict[str, RoutingPolicy] = {"least_loaded": least_loaded}
