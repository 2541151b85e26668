"""All that looks at the finished requests of one gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.monitoring.monitor import AskOthers, Monitor
from deployments.gateway.monitoring.watching import Watching
from deployments.gateway.placement.placement import Placement
from deployments.gateway.request.finished import Finished, Sink
from deployments.gateway.request.log import RequestLog
from serve_app.api.routes import ROUTES, Access
from serve_app.latency import LatencyWindows
from serve_app.model_choice.names import ModelNames
from serve_app.monitoring.metrics import Meter, NoMeter
from serve_app.recent import Recent
from serve_app.settings import Settings
from serve_app.traffic import Traffic


class Sampling(Protocol):
    """Looks at some answers."""

    def watch(self, monitor: Monitor) -> None: ...


class Observers:
    """``recent`` is ``None`` where no requests are kept. ``sinks`` are given the records besides its own,
    ``later`` a moment after them. Made inside a running event loop; ``stop`` ends what watches, ``close``
    hands on the last records."""

    def __init__(
        self,
        settings: Settings,
        names: ModelNames,
        meter: Meter | None,
        ask_others: AskOthers | None,
        sinks: Sequence[Sink],
        *,
        later: Sequence[Sink] = (),
    ) -> None:
        if meter is None or not settings.gateway.metrics:
            meter = NoMeter()
        self.latency = LatencyWindows()
        self.watching = Watching(settings, names, meter, ask_others)
        self.recent = _recent(settings)
        self.finished = self._finishing(settings, sinks, list(later))

    def _finishing(self, settings: Settings, sinks: Sequence[Sink], later: list[Sink]) -> Finished:
        """The newest requests are asked for right after their answers; the other sinks take their time."""
        if settings.gateway.metrics:
            later += [self.latency.take, self.watching.monitor.take]
            if self.recent is not None:
                sinks = [self.recent.take, *sinks]
        if settings.logs.requests != "off":
            later.append(RequestLog(settings.logs.requests, settings.logs.refused_per_s))
        return Finished(sinks, later)

    def start(
        self,
        placement: Placement,
        traffic: Traffic,
        cache: CacheClient | None,
        sampling: Sampling | None = None,
    ) -> None:
        """``sampling`` counts in the monitor what it sees of answers."""
        self.watching.start(placement, traffic, cache)
        if sampling is not None:
            sampling.watch(self.watching.monitor)

    async def stop(self) -> None:
        await self.watching.close()

    def close(self) -> None:
        self.finished.close()


def _recent(settings: Settings) -> Recent | None:
    size = settings.gateway.recent_requests
    return Recent(size, [route.path for route in ROUTES if route.access is Access.KEY]) if size else None
