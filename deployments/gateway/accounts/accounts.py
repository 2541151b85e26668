"""All that one gateway has of the accounts: made together, ended together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deployments.gateway.accounts.audit import Auditor
from deployments.gateway.accounts.client import AccountsClient
from deployments.gateway.accounts.gateway_quotas import GatewayQuotas
from deployments.gateway.accounts.sync import AccountSync
from deployments.gateway.accounts.usage import UsageReports, running_in
from serve_app.accounts.default_limits import table_of
from serve_app.accounts.pace import ChangePace
from serve_app.accounts.refused import RefusedUsers
from serve_app.fleet import FleetTable
from serve_app.metering import Metering
from serve_app.model_choice.names import ModelNames
from serve_app.monitoring.metrics import Meter, NoMeter
from serve_app.quotas.messages import LeaseCall, LeaseReply
from serve_app.request.auth import ManagedKeys
from serve_app.settings import AccountSettings, Settings
from serve_app.usage.prices import Prices

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

BEGIN_S = 10.0
"""How long a gateway that starts waits for the keys: Serve starts it and their owner at once."""

LEASE_S = 1.0
"""How long a call for a part of a limit may take, many times what it does."""


class GatewayAccounts:
    """Made inside a running event loop; ``close`` ends it. ``keys`` are those that are made at run time."""

    def __init__(
        self,
        settings: Settings,
        own: AccountSettings,
        handle: DeploymentHandle[Any],
        *,
        names: ModelNames,
        fleet: FleetTable,
        meter: Meter,
    ) -> None:
        self.settings = own
        self.keys = ManagedKeys()
        self.refused = RefusedUsers()
        self.client = AccountsClient(handle, own.call_timeout_s)
        limits, prices = table_of(own), Prices.of(settings)
        metering = Metering(
            tuple(names),
            prices,
            running_in(fleet, names),
            own.usage_waiting_rows,
            cached_rate=own.cached_rate,
        )
        self.usage = UsageReports(metering, meter, own.usage_metrics_tenants)
        self.sync = AccountSync(self.client, self.keys, self.usage, limits, refused=self.refused)
        self.audit = Auditor(
            self.client,
            self.sync.gateway,
            settings.logs.refused_per_s,
            ChangePace(own.tenant_changes_per_minute),
        )
        self.quotas = GatewayQuotas(self._lease, limits, prices, own.cached_rate)

    async def begun(self) -> None:
        await self.sync.begun(BEGIN_S)

    async def close(self) -> None:
        await self.audit.stop()
        await self.quotas.stop()
        await self.sync.stop()
        await self.client.close()

    async def _lease(self, call: LeaseCall) -> LeaseReply:
        """Raises: AccountsUnavailable."""
        reply: LeaseReply = await self.client.call_once("lease", call, timeout_s=LEASE_S)
        return reply


def accounts_of(
    settings: Settings,
    handle: DeploymentHandle[Any] | None,
    names: ModelNames,
    fleet: FleetTable,
    meter: Meter | None,
) -> GatewayAccounts | None:
    """``None`` where no key is made at run time."""
    if settings.accounts is None or handle is None:
        return None
    meter = NoMeter() if meter is None or not settings.gateway.metrics else meter
    return GatewayAccounts(settings, settings.accounts, handle, names=names, fleet=fleet, meter=meter)
