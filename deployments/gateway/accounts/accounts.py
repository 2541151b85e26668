"""All that one gateway has of the accounts: made together, ended together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deployments.gateway.accounts.client import AccountsClient
from deployments.gateway.accounts.sync import AccountSync
from serve_app.request.auth import ManagedKeys
from serve_app.settings import AccountSettings, Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

BEGIN_S = 10.0
"""How long a gateway that starts waits for the keys: Serve starts it and their owner at once."""


class GatewayAccounts:
    """Made inside a running event loop; ``close`` ends it. ``keys`` are those that are made at run time."""

    def __init__(self, settings: AccountSettings, handle: DeploymentHandle[Any]) -> None:
        self.settings = settings
        self.keys = ManagedKeys()
        self.client = AccountsClient(handle, settings.call_timeout_s)
        self.sync = AccountSync(self.client, self.keys)

    async def begun(self) -> None:
        await self.sync.begun(BEGIN_S)

    async def close(self) -> None:
        await self.sync.stop()
        await self.client.close()


def accounts_of(settings: Settings, handle: DeploymentHandle[Any] | None) -> GatewayAccounts | None:
    """``None`` where no key is made at run time."""
    if settings.accounts is None or handle is None:
        return None
    return GatewayAccounts(settings.accounts, handle)
