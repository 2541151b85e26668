"""One gateway's ways to the members of its models: calls, and WebSockets that keep one member."""

from __future__ import annotations

from collections.abc import Mapping

from deployments.gateway.placement.queue import Admission
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.pinned import Pins
from deployments.gateway.send.sender import Destination, Sender
from deployments.wire.upstream import UpstreamPool
from serve_app.hedging import Hedge
from serve_app.model_choice.names import ModelNames
from serve_app.quarantine import Quarantine
from serve_app.settings import Settings
from serve_app.traffic import Traffic


class Ways:
    """``admissions`` are by a model's own name, ``destinations`` by any name of a model, an adapter or an
    alias."""

    def __init__(
        self,
        settings: Settings,
        names: ModelNames,
        admissions: Mapping[str, Admission],
        upstream: UpstreamPool,
        traffic: Traffic,
    ) -> None:
        limits, most = settings.limits, settings.gateway.max_attempts
        self.destinations = _destinations(settings, names, admissions)
        self.sender = Sender(upstream, limits)
        quarantine = Quarantine(limits.quarantine_s)
        self.dispatcher = Dispatcher(self.destinations, self.sender, quarantine, traffic, max_attempts=most)
        self.pins = Pins(
            self.destinations,
            traffic,
            max_attempts=most,
            max_message_bytes=limits.max_event_bytes,
            answer_timeout_s=limits.first_token_timeout_s,
        )


def _destinations(
    settings: Settings, names: ModelNames, admissions: Mapping[str, Admission]
) -> dict[str, Destination]:
    hedges, by_priority = _hedges(settings), _scheduled_by_priority(settings)
    return {
        name: Destination(
            own=served.name,
            admission=admissions[served.model],
            hedge=hedges.get(served.model),
            by_priority=served.model in by_priority,
        )
        for name, served in names.served.items()
    }


def _hedges(settings: Settings) -> dict[str, Hedge]:
    return {
        model.id: Hedge(model.hedge.max_share, model.hedge.quantile)
        for model in settings.models
        if model.hedge is not None
    }


def _scheduled_by_priority(settings: Settings) -> frozenset[str]:
    """The models whose managed engines schedule by priority; other engines reject a priority."""
    engines = {model.id: model.engine for model in settings.models if model.engine is not None}
    return frozenset(model for model, engine in engines.items() if engine.scheduling_policy == "priority")
