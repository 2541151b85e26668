"""What the claims of a checked token mean here: tenant, user, models and role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from serve_app.api.roles import Role
from serve_app.errors import Forbidden
from serve_app.request.auth import TENANT_PATTERN, Identity
from serve_app.settings.sign_in import OidcSettings
from serve_app.sign_in.tokens import Claims

MOST_VALUES = 1000
MAX_NAME_CHARS = 256
RIGHTS = (Role.USER, Role.VIEWER, Role.TENANT_ADMIN, Role.ADMIN)
"""Roles from the fewest rights to the most."""


class NotMapped(Forbidden):
    """The token is valid, but says nothing that the settings know as a tenant, a user or models."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Signed in, but not let in: {why}.", code="claims_not_mapped")


def identity_of(claims: Claims, settings: OidcSettings, expires_at: float) -> Identity:
    """Who the token stands for, until ``expires_at`` (Unix seconds).

    Raises:
        NotMapped: a claim that must be there is missing, has a wrong type, or a value that is not allowed.
    """
    return Identity(
        tenant=_tenant(claims, settings),
        role=_role(claims, settings),
        user=_user(claims, settings),
        models=_models(claims, settings),
        expires_at=expires_at,
    )


def _tenant(claims: Claims, settings: OidcSettings) -> str:
    if settings.tenant_claim is None:
        assert settings.tenant is not None, "the settings name one of the two"
        return settings.tenant
    name = settings.tenant_claim
    values = _values(claims, name, "auth.oidc.tenant_claim")
    if settings.tenants:
        values = [settings.tenants[value] for value in values if value in settings.tenants]
    tenants = set(values)
    if len(tenants) != 1:
        problem = "names no tenant" if not tenants else "names more than one tenant"
        raise NotMapped(f"the claim `{name}` {problem} (auth.oidc.tenant_claim)")
    tenant = tenants.pop()
    if not re.match(TENANT_PATTERN, tenant):
        raise NotMapped(f"the claim `{name}` holds no tenant's name: expected {TENANT_PATTERN}")
    return tenant


def _role(claims: Claims, settings: OidcSettings) -> Role:
    given = {settings.default_role}
    if settings.role_claim is not None:
        values = _values(claims, settings.role_claim, "auth.oidc.role_claim")
        fitting = {settings.roles[value] for value in values if value in settings.roles}
        given = fitting or given
    return max(map(Role, given), key=RIGHTS.index)


def _user(claims: Claims, settings: OidcSettings) -> str:
    value = _found(claims, settings.user_claim)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS or not value.isprintable():
        raise NotMapped(f"the claim `{settings.user_claim}` names no user (auth.oidc.user_claim)")
    return value


def _models(claims: Claims, settings: OidcSettings) -> tuple[str, ...] | None:
    if settings.models_claim is None:
        return None
    return tuple(dict.fromkeys(_values(claims, settings.models_claim, "auth.oidc.models_claim")))


def _values(claims: Claims, name: str, setting: str) -> list[str]:
    """The strings of a claim, which may be one or a list; none where it is missing."""
    found = _found(claims, name)
    values = [] if found is None else found if isinstance(found, list) else [found]
    if len(values) > MOST_VALUES or not all(isinstance(value, str) for value in values):
        raise NotMapped(f"the claim `{name}` is no text and no list of texts ({setting})")
    return values


def _found(claims: Claims, name: str) -> Any:
    if "/" in name or ":" in name:
        return claims.get(name)
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
