"""A team's own administrator sees what is that team's."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from deployments.gateway.request.exchange import Exchange
from serve_app.api.roles import Role
from serve_app.errors import Forbidden
from serve_app.feedback.captured import CaptureQuery
from serve_app.feedback.values import FeedbackQuery

OwnQuery = TypeVar("OwnQuery", FeedbackQuery, CaptureQuery)


def own(exchange: Exchange, query: OwnQuery) -> OwnQuery:
    """A team's own administrator asks for that team's. Raises: Forbidden: it is another team's."""
    identity = exchange.identity
    if identity.role is not Role.TENANT_ADMIN:
        return query
    if query.tenant not in (None, identity.tenant):
        raise Forbidden(f"This key sees the feedback of {identity.tenant!r} only.", code="other_tenant")
    return msgspec.structs.replace(query, tenant=identity.tenant)
