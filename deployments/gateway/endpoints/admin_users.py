"""``/admin/refused-users``: users whom every gateway refuses, whatever token, session or key they send."""

from __future__ import annotations

import time
from urllib.parse import parse_qs

import msgspec

from deployments.gateway.accounts.accounts import GatewayAccounts
from deployments.gateway.request.bodies import ADMINISTRATORS, Bodies
from deployments.gateway.request.exchange import Exchange
from serve_app.accounts.keys import Outcome
from serve_app.accounts.refused import Named, Refused, RefusedUser, named_by, named_in
from serve_app.accounts.requests import by_whom
from serve_app.api.roles import Role
from serve_app.errors import BadRequest, Conflict, Forbidden, NotFound
from serve_app.request.auth import Identity


class AdminUsers:
    """``accounts`` is ``None`` where nothing is kept."""

    def __init__(self, bodies: Bodies, accounts: GatewayAccounts | None) -> None:
        self._bodies = bodies
        self._accounts = accounts

    async def __call__(self, exchange: Exchange) -> None:
        """``GET``: who is refused. ``POST``: refuse one more. ``DELETE``: let one in again."""
        if self._accounts is None:
            raise NotFound("No refused users are kept here (accounts).", code="no_accounts")
        if exchange.method == "POST":
            await self._refuse(exchange, self._accounts)
            return
        query = {name: values[-1] for name, values in parse_qs(exchange.query.decode("latin-1")).items()}
        if exchange.method == "DELETE":
            await self._let_in(exchange, self._accounts, query)
            return
        found: Refused = await self._accounts.client.call("refused_users")
        maker = exchange.identity
        tenant = query.get("tenant") if maker.role is Role.ADMIN else maker.tenant
        users = [each for each in found.users if tenant in (None, each.tenant)]
        await exchange.respond_json({"users": users})

    async def _refuse(self, exchange: Exchange, accounts: GatewayAccounts) -> None:
        maker = exchange.identity
        of = ADMINISTRATORS if maker.role is Role.ADMIN else maker.tenant
        named = named_in(await self._bodies.read(exchange, of))
        tenant = _tenant(named, maker)
        if (tenant, named.user) == (maker.tenant, maker.user):
            raise BadRequest("You cannot refuse yourself.", param="user", code="invalid_value")
        exchange.audit_target = f"tenant={tenant} user={named.user}"
        refused = RefusedUser(
            tenant=tenant,
            user=named.user,
            at=time.time(),
            by=by_whom(maker),
            holds_admins=maker.role is Role.ADMIN,
        )
        outcome: Outcome = await accounts.client.call("refuse_user", refused)
        if outcome is Outcome.FULL:
            raise Conflict("There is no room for another refused user.", code="too_many_refused")
        accounts.refused.put([refused])  # here at once; the other gateways learn it at their next exchange
        await exchange.respond_json(msgspec.structs.asdict(refused))

    async def _let_in(self, exchange: Exchange, accounts: GatewayAccounts, query: dict[str, str]) -> None:
        maker, named = exchange.identity, named_by(query)
        tenant = _tenant(named, maker)
        exchange.audit_target = f"tenant={tenant} user={named.user}"
        outcome: Outcome = await accounts.client.call(
            "let_in_user", tenant, named.user, maker.role is Role.ADMIN
        )
        if outcome is Outcome.CONFLICT:
            raise Forbidden("An administrator of the application has refused this user.", code="admin_only")
        if outcome is Outcome.ABSENT:
            raise NotFound("This user is not refused.", param="user", code="not_refused")
        accounts.refused.remove(tenant, named.user)
        await exchange.respond_json({"tenant": tenant, "user": named.user, "refused": False})


def _tenant(named: Named, maker: Identity) -> str:
    """Raises: BadRequest, Forbidden: it is not the administrator's own."""
    if maker.role is Role.ADMIN:
        if named.tenant is None:
            raise BadRequest("`tenant`: whose user is it?", param="tenant", code="missing_field")
        return named.tenant
    if named.tenant not in (None, maker.tenant):
        raise Forbidden(
            f"`tenant`: you keep the users of {maker.tenant!r}.", param="tenant", code="more_than_your_own"
        )
    return maker.tenant
