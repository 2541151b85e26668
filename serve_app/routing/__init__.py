"""Routing: pure functions from a request and the candidates to an order of preference."""

from serve_app.routing.base import RegisteredPolicy, RoutingPolicy, RoutingRequest
from serve_app.routing.registry import POLICIES
from serve_app.routing.router import Router
from serve_app.routing.sessions import named_session

__all__ = ["POLICIES", "RegisteredPolicy", "Router", "RoutingPolicy", "RoutingRequest", "named_session"]
