"""Authentication: the client that sends a request, by its key or the admin token."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.admission import FIRST_PRIORITY
from serve_app.api.roles import Role
from serve_app.errors import Forbidden
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import DEFAULT_TENANT, Identity, KeyRing, credentials_of

ANYONE = Identity(DEFAULT_TENANT, best_priority=FIRST_PRIORITY)
"""Without keys there is one tenant."""

OWNER = Identity(DEFAULT_TENANT, Role.ADMIN, FIRST_PRIORITY)
"""Who knows the admin token."""


class Authenticator:
    """``keys`` is ``None`` without API keys; it is replaced when keys change. ``admin_token`` opens
    ``/admin`` where no key is asked for, and beside the keys that are made at run time."""

    def __init__(self, keys: KeyRing | None, admin_token: AdminToken | None) -> None:
        self.keys = keys
        self._admin_token = admin_token

    def identify(self, headers: Mapping[str, str]) -> Identity:
        """Raises: Unauthorized: there is no key, or the key is not known."""
        return ANYONE if self.keys is None else self.keys.identify(credentials_of(headers))

    def administrator(self, headers: Mapping[str, str]) -> Identity | None:
        """Who knows the admin token; ``None`` where a key must tell who is an administrator.

        Raises:
            Unauthorized: there is no token, or another one.
            Forbidden: there are neither keys nor a token.
        """
        if self.keys is not None:
            token = self._admin_token
            return OWNER if token is not None and token.fits(headers.get("authorization")) else None
        if self._admin_token is None:
            raise Forbidden("With `auth: none` there is no `/admin`: configure keys.", code="admin_only")
        self._admin_token.check(headers.get("authorization"))
        return OWNER
