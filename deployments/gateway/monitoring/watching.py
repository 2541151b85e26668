"""All that watches one gateway: the monitor, the alerts, the webhook and the gauges."""

from __future__ import annotations

from functools import partial

from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.monitoring.alerting import Alerting
from deployments.gateway.monitoring.gauges import Gauges
from deployments.gateway.monitoring.monitor import AskOthers, Monitor
from deployments.gateway.monitoring.webhook import Webhook
from deployments.gateway.placement.placement import Placement
from serve_app.model_choice.names import ModelNames
from serve_app.monitoring.metrics import Meter
from serve_app.settings import Settings
from serve_app.traffic import Traffic


class Watching:
    """Made inside a running event loop; ``close`` ends it."""

    def __init__(
        self, settings: Settings, names: ModelNames, meter: Meter, ask_others: AskOthers | None
    ) -> None:
        alerts = settings.alerts
        self._meter = meter
        self._webhook: Webhook | None = None
        if alerts.webhook_url is not None:
            self._webhook = Webhook(
                alerts.webhook_url, timeout_s=alerts.webhook_timeout_s, attempts=alerts.webhook_attempts
            )
        self.monitor = Monitor(tuple(names), alerts, meter, ask_others)
        self.alerting = Alerting(alerts, self.monitor, meter, self._webhook)
        self._gauges: Gauges | None = None

    def start(self, placement: Placement, traffic: Traffic, cache: CacheClient | None) -> None:
        self.alerting.start()
        also = partial(self.monitor.gaps.report, self._meter)
        self._gauges = Gauges(self._meter, placement, traffic, cache, also)

    async def close(self) -> None:
        await self.alerting.stop()
        if self._gauges is not None:
            await self._gauges.stop()
        if self._webhook is not None:
            await self._webhook.close()
