"""The owner of the accounts as a plain object, and gateways that share one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from deployments.accounts.deployment import Accounts
from deployments.accounts.store.sql import SqlAccounts
from serve_app.accounts.calls import ACCOUNTS
from serve_app.accounts.keys import ManagedKey
from serve_app.request.auth import make_key
from serve_app.settings import AccountSettings
from serve_app.wire.calls import Wire
from support.gateway import Running, SimSettings, gateway
from support.handles import LocalHandle

QUICK = SimSettings(itl_ms=0, tokens=2)

Opened = Callable[..., AbstractAsyncContextManager[SqlAccounts]]
"""Opens the store of a folder; further arguments are settings. Stores of one folder keep the same."""


class PlainAccounts(Accounts):
    """Serve awaits the destructor; the interpreter would not."""

    def __del__(self) -> None:  # type: ignore[override]
        """The test that opens it calls ``close``."""


class EncodingHandle(LocalHandle):
    """What is said goes through the wire's encoding both ways, as between processes."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self._wire = Wire(ACCOUNTS)

    async def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        if method not in ACCOUNTS:
            return await super()._call(method, args)
        wire = self._wire
        sent = wire.decode_arguments(method, wire.encode_arguments(method, args))
        return wire.decode_result(method, wire.encode_result(method, await super()._call(method, sent)))


async def open_accounts(folder: Path, **settings: Any) -> Accounts:
    """Made as Serve makes it."""
    made = PlainAccounts.__new__(PlainAccounts)
    values = {"path": str(folder), "min_free_disk_bytes": 0, **settings}
    await made.__init__(AccountSettings(**values))  # type: ignore[misc]
    return made


@asynccontextmanager
async def accounts_handle(folder: Path, **settings: Any) -> AsyncIterator[LocalHandle]:
    """What stands for the deployment's handle."""
    handle = EncodingHandle(await open_accounts(folder, **settings))
    try:
        yield handle
    finally:
        await handle.target.close()


@asynccontextmanager
async def with_accounts(handle: LocalHandle, *engines: SimSettings, **args: Any) -> AsyncIterator[Running]:
    """A gateway whose keys are made at run time; its session sends the admin token by default."""
    handles = {"accounts": handle, **args.pop("handles", {})}
    given = {"auth": {"accounts": True}, "accounts": {"call_timeout_s": 1.5}, **args}
    async with gateway(*(engines or [QUICK]), handles=handles, **given) as running:
        yield running


def managed(tenant: str, now: float = 1000.0, **rights: Any) -> tuple[str, ManagedKey]:
    """A new key, and what its owner keeps of it."""
    key, record = make_key(tenant, **rights)
    return key, ManagedKey(record=record, created_at=now, changed_at=now)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
