"""Routing policies: pure functions from the candidates to an order of preference."""

from serve_app.routing.base import RoutingPolicy
from serve_app.routing.registry import POLICIES

__all__ = ["POLICIES", "RoutingPolicy"]
