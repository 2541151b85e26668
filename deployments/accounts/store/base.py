"""The contract of a store of accounts."""

from __future__ import annotations

from typing import Protocol

from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import Kept, KeyPage, KeyQuery, ManagedKey
from serve_app.usage import UsagePage, UsageQuery


class AccountStore(Protocol):
    """``now`` is in Unix seconds. What a call has written is durable when it returns, also if the process is
    killed then. Every method may raise AccountsError.
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

    async def usage(self, query: UsageQuery) -> UsagePage:
        """What gateways have reported."""
        ...

    async def sweep(self, now: float) -> None:
        """Remove the usage of days that are no longer kept."""
        ...

    async def close(self) -> None: ...
