"""``/admin/keys``: keys that are made at run time. Administrators keep all, those of a tenant its own.

A secret is made here, shown once, and only its salted hash leaves this process.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from urllib.parse import parse_qs

import msgspec

from deployments.gateway.accounts.accounts import GatewayAccounts
from deployments.gateway.request.bodies import ADMINISTRATORS, Bodies
from deployments.gateway.request.exchange import Exchange, Handler
from serve_app.accounts.keys import Kept, KeyPage, ManagedKey, Outcome, changed_to, revoked, rotated
from serve_app.accounts.requests import (
    by_whom,
    changed_meanwhile,
    fields_of,
    query_of,
    record_with,
    require_keeper,
    require_version,
    require_within,
    rights_of,
    rotation_of,
    shown,
)
from serve_app.api.roles import Role
from serve_app.errors import AccountsUnavailable, BadRequest, Conflict, NotFound
from serve_app.request.auth import make_key, new_secret_of

PREFIX = "/admin/keys/"
NO_ROOM = "There is no room for another key (accounts.max_keys, accounts.max_keys_per_tenant)."


class AdminKeys:
    """``accounts`` is ``None`` where no key is made at run time; ``models``: all names of models. It is
    one class because every change of a key goes the same way: found, judged, kept, in force."""

    def __init__(self, bodies: Bodies, accounts: GatewayAccounts | None, models: Collection[str]) -> None:
        self._bodies = bodies
        self._accounts = accounts
        self._models = models

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {
            "admin_keys": self.all,
            "admin_key": self.one,
            "admin_key_rotate": self.rotate,
        }

    async def all(self, exchange: Exchange) -> None:
        """``GET``: a page of keys. ``POST``: a new one."""
        accounts = self._required()
        if exchange.method == "POST":
            await self._make(exchange, accounts)
            return
        pairs = parse_qs(exchange.query.decode("latin-1"), keep_blank_values=True)
        query = query_of({name: values[-1] for name, values in pairs.items()}, exchange.identity)
        page: KeyPage = await accounts.client.call("keys", query)
        following = page.keys[-1].record.id if page.has_more else None
        await exchange.respond_json({"keys": [shown(key) for key in page.keys], "next": following})

    async def one(self, exchange: Exchange) -> None:
        """``GET``: a key. ``PATCH``: change it. ``DELETE``: revoke it."""
        accounts = self._required()
        if exchange.method == "DELETE":
            await self._revoke(exchange, accounts)
            return
        key = await self._found(exchange, accounts, exchange.path.removeprefix(PREFIX))
        if exchange.method == "PATCH":
            key = await self._change(exchange, accounts, key)
        await exchange.respond_json(shown(key))

    async def rotate(self, exchange: Exchange) -> None:
        """A new secret; the old one works for a while."""
        accounts = self._required()
        asked = rotation_of(await self._body(exchange))
        key_id = exchange.path.removeprefix(PREFIX).removesuffix("/rotate")
        key = await self._found(exchange, accounts, key_id)
        require_within(key.record, exchange.identity)  # its secret is shown
        require_version(key, asked.version)
        _refuse_revoked(key)
        overlap_s = accounts.settings.rotation_overlap_s if asked.overlap_s is None else asked.overlap_s
        secret, salt, hashed = new_secret_of(key_id)
        by, now = by_whom(exchange.identity), time.time()
        key = await self._keep(accounts, rotated(key, salt, hashed, by=by, now=now, overlap_s=overlap_s))
        await exchange.respond_json(shown(key) | {"key": secret})

    async def _make(self, exchange: Exchange, accounts: GatewayAccounts) -> None:
        fields, maker, now = fields_of(await self._body(exchange)), exchange.identity, time.time()
        tenant = fields.tenant or (maker.tenant if maker.role is not Role.ADMIN else None)
        if not isinstance(tenant, str):
            raise BadRequest("`tenant`: whose is the key?", param="tenant", code="missing_field")
        secret, record = make_key(tenant, role=Role.USER)
        record = record_with(record, fields, now, self._models)
        require_within(record, maker)
        exchange.audit_target = f"key={record.id} tenant={tenant} {rights_of(record)}"
        label, by = fields.label if isinstance(fields.label, str) else "", by_whom(maker)
        key = ManagedKey(
            record=record, label=label, created_at=now, changed_at=now, made_by=by, changed_by=by
        )
        kept: Kept = await accounts.client.call("make_key", key)
        if kept.outcome is Outcome.FULL:
            raise Conflict(NO_ROOM, code="too_many_keys")
        if kept.outcome is not Outcome.KEPT:  # two keys drew one id
            raise AccountsUnavailable("try again")
        self._in_force(accounts, key)
        await exchange.respond_json(shown(key) | {"key": secret}, status=201)

    async def _change(self, exchange: Exchange, accounts: GatewayAccounts, key: ManagedKey) -> ManagedKey:
        fields, now = fields_of(await self._body(exchange)), time.time()
        if fields.tenant is not msgspec.UNSET and fields.tenant != key.record.tenant:
            raise BadRequest("`tenant`: a key stays with its tenant.", param="tenant", code="invalid_value")
        require_version(key, fields.version)
        _refuse_revoked(key)
        require_within(key.record, exchange.identity)  # who could not give a right cannot take it away
        record = record_with(key.record, fields, now, self._models)
        require_within(record, exchange.identity)
        exchange.audit_target = f"{exchange.path} {rights_of(record)}"
        changed = changed_to(key, record, by=by_whom(exchange.identity), now=now)
        if isinstance(fields.label, str):
            changed = msgspec.structs.replace(changed, label=fields.label)
        return await self._keep(accounts, changed)

    async def _revoke(self, exchange: Exchange, accounts: GatewayAccounts) -> None:
        """Whatever else happens to the key meanwhile: this is the last change of it."""
        key_id = exchange.path.removeprefix(PREFIX)
        while True:
            key = await self._found(exchange, accounts, key_id)
            require_keeper(key.record, exchange.identity)
            ended = revoked(key, by=by_whom(exchange.identity), now=time.time())
            kept: Kept = await accounts.client.call("change_key", ended)
            if kept.outcome is not Outcome.CONFLICT:
                break
        self._in_force(accounts, ended)
        await exchange.respond_json(shown(ended))

    async def _keep(self, accounts: GatewayAccounts, key: ManagedKey) -> ManagedKey:
        """Raises: Conflict: another change came first."""
        kept: Kept = await accounts.client.call("change_key", key)
        if kept.outcome is Outcome.CONFLICT and kept.key is not None:
            raise changed_meanwhile(kept.key)
        if kept.outcome is not Outcome.KEPT:
            raise _unknown(key.record.id)
        self._in_force(accounts, key)
        return key

    async def _found(self, exchange: Exchange, accounts: GatewayAccounts, key_id: str) -> ManagedKey:
        """Raises: NotFound: there is none, or it is another tenant's."""
        key: ManagedKey | None = await accounts.client.call("key", key_id)
        maker = exchange.identity
        if key is None or (maker.role is not Role.ADMIN and key.record.tenant != maker.tenant):
            raise _unknown(key_id)
        return key

    def _in_force(self, accounts: GatewayAccounts, key: ManagedKey) -> None:
        """Here at once; the other gateways learn it at their next exchange."""
        if key.revoked_at is None:
            accounts.keys.change([key.record], [])
        else:
            accounts.keys.change([], [key.record.id])

    def _required(self) -> GatewayAccounts:
        if self._accounts is None:
            raise NotFound("No keys are made at run time here (auth.accounts).", code="no_accounts")
        return self._accounts

    async def _body(self, exchange: Exchange) -> bytes:
        identity = exchange.identity
        tenant = ADMINISTRATORS if identity.role is Role.ADMIN else identity.tenant
        return await self._bodies.read(exchange, tenant)


def _unknown(key_id: str) -> NotFound:
    return NotFound(f"There is no key {key_id[:40]!r}.", param="id", code="key_not_found")


def _refuse_revoked(key: ManagedKey) -> None:
    if key.revoked_at is not None:
        raise Conflict(f"The key {key.record.id} is revoked: make a new one.", code="key_revoked")
