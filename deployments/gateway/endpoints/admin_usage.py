"""``/admin/usage`` and ``/admin/audit``: what was used, and who did what. Neither holds text of a request."""

from __future__ import annotations

from urllib.parse import parse_qsl

import msgspec

from deployments.gateway.accounts.accounts import GatewayAccounts
from deployments.gateway.request.exchange import Exchange, Handler
from serve_app.api.roles import Role
from serve_app.audit import AuditPage
from serve_app.errors import BadRequest, Forbidden, NotFound
from serve_app.usage import UsagePage, UsageQuery, parse_usage_query
from serve_app.usage.query import format_of
from serve_app.usage.shown import as_csv, shown

CSV = "text/csv; charset=utf-8"
AS_FILE = {"content-disposition": 'attachment; filename="usage.csv"'}
NEWEST = 100
MOST_LINES = 1000


class AdminUsage:
    """``accounts`` is ``None`` where the settings have none."""

    def __init__(self, accounts: GatewayAccounts | None) -> None:
        self._accounts = accounts

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {
            "admin_audit": self.audit,
            "admin_usage": self.usage,
        }

    async def usage(self, exchange: Exchange) -> None:
        """A team's own administrator sees that team's. Raises: AccountsUnavailable."""
        accounts, given = self._kept(), _given(exchange)
        form = format_of(given)
        query = _own(exchange, parse_usage_query(given))
        page: UsagePage = await accounts.client.call("usage", query)
        if form == "csv":
            await exchange.respond(200, as_csv(page, query.by).encode(), CSV, AS_FILE)
            return
        await exchange.respond_json(shown(page, query.by))

    async def audit(self, exchange: Exchange) -> None:
        """The newest lines, newest first, and the head: a copy of it kept elsewhere shows later whether the
        log was changed. Raises: AccountsUnavailable."""
        accounts, given = self._kept(), _given(exchange)
        unknown = sorted(given.keys() - {"last"})
        if unknown:
            raise BadRequest(
                f"Unknown query parameter {unknown[0][:40]!r}; known: last.", param=unknown[0][:40]
            )
        page: AuditPage = await accounts.client.call("audit_lines", _last(given.get("last")))
        lines = [msgspec.structs.asdict(line) for line in page.lines]
        await exchange.respond_json({"lines": lines, "head": msgspec.structs.asdict(page.head)})

    def _kept(self) -> GatewayAccounts:
        if self._accounts is None:
            raise NotFound("Nothing is kept here: the settings have no `accounts`.", code="no_accounts")
        return self._accounts


def _given(exchange: Exchange) -> dict[str, str]:
    return dict(parse_qsl(exchange.query.decode("latin-1"), keep_blank_values=True))


def _own(exchange: Exchange, query: UsageQuery) -> UsageQuery:
    """Raises: Forbidden: it is another team's."""
    identity = exchange.identity
    if identity.role is not Role.TENANT_ADMIN:
        return query
    if query.tenant not in (None, identity.tenant):
        raise Forbidden(f"This key sees the usage of {identity.tenant!r} only.", code="other_tenant")
    return msgspec.structs.replace(query, tenant=identity.tenant)


def _last(text: str | None) -> int:
    if text is None:
        return NEWEST
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else 0
    if not 1 <= value <= MOST_LINES:
        raise BadRequest(f"`last` is {text[:40]!r}; expected 1 to {MOST_LINES}.", param="last")
    return value
