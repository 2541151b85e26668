"""The gate: every request passes it before its handler. Handlers find who asks in ``exchange.identity``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from deployments.gateway.request.account import Account
from deployments.gateway.request.authentication import ANYONE, Authenticator
from deployments.gateway.request.entrance import Senders
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.holdings import Quotas
from serve_app.accounts.refused import RefusedUsers
from serve_app.api.routes import Access, Route
from serve_app.front_door.config import CLIENT_ADDRESS
from serve_app.realtime.opening import with_key
from serve_app.request.auth import Identity, require_endpoint, require_model, require_role, require_unexpired
from serve_app.request.networks import client_address, require_network


class SignedIn(Protocol):
    """Knows who signed in at a provider of identities."""

    async def of(self, headers: Mapping[str, str]) -> Identity | None:
        """``None``: the request carries nothing of the provider's, so its key tells who sends it. Raises:
        Unauthorized, Forbidden, SignInUnavailable."""


class Gate:
    """Lets a request in whose sender may use its route. What it names in its body, the handler learns first:
    see :func:`uses_model`."""

    def __init__(
        self,
        auth: Authenticator,
        signed_in: SignedIn,
        now: Callable[[], float],
        door_secret: str | None = None,
        quotas: Quotas | None = None,
        *,
        refused: RefusedUsers | None = None,
    ) -> None:
        """``now``: Unix seconds, which never go back. ``door_secret``: see ``client_address``. ``quotas``: of
        all limits, where there may be some; they hold for all routes of keys. ``refused``: users who are let
        in nowhere."""
        self._auth = auth
        self._signed_in = signed_in
        self._now = now
        self._door_secret = door_secret
        self._quotas = quotas
        self._refused = refused
        self.senders = None if auth.keys is None else Senders()

    async def enter(self, exchange: Exchange, route: Route) -> None:
        """Sets the exchange's identity, and which timings it may show to it. An open route has no identity.

        Raises:
            Unauthorized: there is no key, or the key is not known, or has expired.
            SignInUnavailable: the keys that check tokens are not known.
            AccountsUnavailable: keys that are made at run time are not known yet.
            Forbidden: the user is refused, or the key may not use this route.
            OverCapacity: the tenant's share of the requests is used up.
            RateLimited, LimitsUnavailable: as ``Account.enter``.
        """
        door_says = exchange.headers.pop(CLIENT_ADDRESS, None)  # it holds a secret
        if route.access is Access.OPEN:
            return
        if exchange.socket is not None:
            exchange.headers = with_key(exchange.headers, exchange.socket.subprotocols)
        identity = await self._signed_in.of(exchange.headers)
        if route.access is Access.ADMIN and identity is None:
            owner = self._auth.administrator(exchange.headers)
            if owner is not None:
                exchange.identity = owner
                return
        several = identity is not None
        if identity is None:
            identity = self._auth.identify(exchange.headers)
            several = self._auth.keys is not None and self._auth.keys.has_several_tenants
        require_unexpired(identity, self._now())
        if self.senders is not None and several:
            self.senders.learn(exchange.headers, identity.tenant)
        self._recognised(exchange, identity, several)
        self._require_rights(exchange, route, identity, door_says)
        if exchange.socket is not None:
            exchange.socket.still_allowed = partial(self._still_allowed, exchange, route, door_says)
        # Who has used up a limit may still revoke the key that did, or lift the limit. Where there are no
        # limits the account still tells usage what those used who left.
        if self._quotas is not None and route.access is not Access.ADMIN:
            exchange.account = Account(
                self._quotas, identity, exchange.path, exchange.timeline, exchange.response_headers
            )
            await exchange.account.enter(runs=route.runs(exchange.method, exchange.query))

    def _require_rights(
        self, exchange: Exchange, route: Route, identity: Identity, door_says: str | None
    ) -> None:
        """Raises: Forbidden, AccountsUnavailable."""
        if self._refused is not None:
            self._refused.require_let_in(identity)
        if identity.networks is not None:
            require_network(identity, client_address(door_says, self._door_secret, _peer(exchange)))
        require_role(identity, route.may_use)
        require_endpoint(identity, exchange.path)

    def _still_allowed(self, exchange: Exchange, route: Route, door_says: str | None) -> Identity:
        """The sender of a long request, by what is known of its key now. A sign-in may have expired, or its
        user been refused, since the request began. It asks no other process, so it takes microseconds.
        Raises: Unauthorized, Forbidden, AccountsUnavailable."""
        identity = exchange.identity
        if identity.key_id is not None:
            identity = self._auth.identify(exchange.headers)
        require_unexpired(identity, self._now())
        self._require_rights(exchange, route, identity, door_says)
        return identity

    def _recognised(self, exchange: Exchange, identity: Identity, several: bool) -> None:
        """``several``: it is one of several tenants, as a person who signs in may be."""
        exchange.identity = identity
        exchange.facts.tenant = identity.tenant
        if identity is ANYONE:
            exchange.shows_all_timing = True  # one tenant: there is nothing to learn about others
            return
        if exchange.tenant_known is not None and several:
            exchange.tenant_known(exchange)
        exchange.shows_all_timing = identity.admin or (identity.debug_timing and exchange.asks_for_timing)


def _peer(exchange: Exchange) -> str | None:
    """Where the connection comes from; ``None`` where that is not certain: uvicorn takes the word of
    that header from a client on this machine, as which a proxy there counts."""
    client = exchange.scope_again().get("client")
    return None if not client or "x-forwarded-for" in exchange.headers else str(client[0])


def uses_model(exchange: Exchange, *names: str) -> None:
    """The request is for a model: ``names`` are the one that it asked for, and the model's own. Every handler
    that reads a model's name calls this, or ``require_model``, before anything answers it.

    Raises:
        Forbidden: the key may use other models only.
    """
    require_model(exchange.identity, *names)
    exchange.facts.model = names[0]
