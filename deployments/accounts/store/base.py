"""The contract of a store of accounts, and of the database in which one keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import Kept, KeyPage, KeyQuery, ManagedKey, Outcome
from serve_app.accounts.refused import Refused, RefusedUser
from serve_app.quotas.ledger import Total
from serve_app.quotas.limits import Limit
from serve_app.quotas.messages import LimitChanges
from serve_app.usage import UsagePage, UsageQuery


class Sql(Protocol):
    """A connection, used from one thread at a time."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Any:
        """A cursor: ``fetchone``, ``fetchall``, ``rowcount``, and its rows."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class AccountStore(Protocol):
    """``now`` is in Unix seconds. What a call has written is durable when it returns, also if the process is
    killed then. Every method may raise AccountsError. It has many methods because one file keeps it all.
    """

    async def exchange(self, report: Report, now: float) -> Changes:
        """Apply a report, once however often it comes, and tell what has changed."""
        ...

    async def make_key(self, key: ManagedKey) -> Kept:
        """``CONFLICT``: there is another key with its id."""
        ...

    async def change_key(self, key: ManagedKey) -> Kept:
        """Keep it if the version before its own is kept. A change that is kept already stays so."""
        ...

    async def key(self, key_id: str) -> ManagedKey | None: ...

    async def keys(self, query: KeyQuery) -> KeyPage: ...

    async def refuse_user(self, user: RefusedUser) -> Outcome:
        """``FULL``: there are too many."""
        ...

    async def let_in_user(self, tenant: str, user: str, is_admin: bool) -> Outcome:
        """``CONFLICT``: only an administrator of the application may."""
        ...

    async def refused_users(self) -> Refused: ...

    async def usage(self, query: UsageQuery) -> UsagePage:
        """What gateways have reported."""
        ...

    async def sweep(self, now: float) -> None:
        """Remove the usage of days that are no longer kept, and what is known of gateways that have ended."""
        ...

    async def limits(self) -> tuple[list[Limit], int]:
        """All, and the number of the last change."""
        ...

    async def put_limit(self, limit: Limit) -> int:
        """Returns the number of the change."""
        ...

    async def remove_limit(self, scope: str) -> int | None:
        """``None``: there was none."""
        ...

    async def limit_changes(self, since: int) -> tuple[LimitChanges, bool]:
        """And whether there are more."""
        ...

    async def write_used(self, totals: Sequence[Total], applied: Mapping[str, int], now: float) -> None:
        """What was used of budgets, and the last report of each gateway that is in it."""
        ...

    async def used(self, now: float) -> tuple[list[Total], dict[str, int]]:
        """The same, of what may still count."""
        ...

    async def close(self) -> None: ...
