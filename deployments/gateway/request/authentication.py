"""Authentication: the client that sends a request, and what it may see and do."""

from __future__ import annotations

from deployments.gateway.request.exchange import Exchange
from serve_app.admission import FIRST_PRIORITY
from serve_app.errors import Forbidden
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import DEFAULT_TENANT, Identity, KeyRing, credentials_of, require_admin

ANYONE = Identity(DEFAULT_TENANT, False, FIRST_PRIORITY)
"""Without keys there is one tenant."""


class Authenticator:
    """``keys`` is ``None`` without API keys; it is replaced when the keys file changes. ``admin_token`` opens
    ``/admin`` with ``auth: loopback``."""

    def __init__(self, keys: KeyRing | None, admin_token: AdminToken | None) -> None:
        self.keys = keys
        self._admin_token = admin_token

    def identify(self, exchange: Exchange) -> Identity:
        """The client's identity; sets which timings the exchange may show to it.

        Raises:
            Unauthorized: there is no key, or the key is not known.
        """
        if self.keys is None:
            exchange.shows_all_timing = True  # one tenant: there is nothing to learn about others
            exchange.facts.tenant = ANYONE.tenant
            return ANYONE
        identity = self.keys.identify(credentials_of(exchange.headers))
        exchange.facts.tenant = identity.tenant
        if exchange.tenant_known is not None and self.keys.has_several_tenants:
            exchange.tenant_known(exchange)
        exchange.shows_all_timing = identity.admin or (identity.debug_timing and exchange.asks_for_timing)
        return identity

    def identify_admin(self, exchange: Exchange) -> Identity:
        """Raises: Unauthorized, Forbidden."""
        if self.keys is None:
            if self._admin_token is None:
                raise Forbidden("With `auth: none` there is no `/admin`: configure keys.", code="admin_only")
            self._admin_token.check(exchange.headers.get("authorization"))
            return Identity(DEFAULT_TENANT, True, FIRST_PRIORITY)
        identity = self.identify(exchange)
        require_admin(identity)
        return identity
