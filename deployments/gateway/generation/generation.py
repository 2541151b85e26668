"""The generating endpoints of one gateway, and what they share: the checks, the tiers, the engine."""

from __future__ import annotations

from deployments.gateway.experiments.shadows import Shadows
from deployments.gateway.experiments.trials import Trials
from deployments.gateway.generation.admit import Admit, Read
from deployments.gateway.generation.drawing import Drawing
from deployments.gateway.generation.endpoint import GenerationEndpoint, Noted, cache_tiers
from deployments.gateway.generation.engine_tier import EngineTier
from deployments.gateway.generation.joining import JoinsElsewhere
from deployments.gateway.generation.record import Recorder
from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.lookup.in_flight import InFlightRequests
from deployments.gateway.lookup.refreshes import Refreshes
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.lookup.together import Together
from deployments.gateway.placement.placement import Placement
from deployments.gateway.prompts.shelf import PromptShelf
from deployments.gateway.request.exchange import Handler
from deployments.gateway.request.intake import Intake
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.ways import Ways
from deployments.platform.telemetry import RequestTracer
from serve_app.model_choice.chooser import ModelChooser
from serve_app.model_choice.names import ModelNames
from serve_app.openai.requests import Endpoint
from serve_app.request.tenant_marks import TenantMarks
from serve_app.settings import Settings


class Generation:
    """``cache`` is ``None`` without one. Made inside a running event loop; ``close`` ends it."""

    def __init__(
        self,
        settings: Settings,
        names: ModelNames,
        intake: Intake,
        *,
        placement: Placement,
        ways: Ways,
        cache: CacheClient | None,
        together: Together,
        shelf: PromptShelf,
        trials: Trials,
        marks: TenantMarks,
        tracer: RequestTracer | None,
        guards: Guards | None,
        noted: Noted | None,
    ) -> None:
        dispatcher = ways.dispatcher
        self._settings, self._guards, self._noted = settings, guards, noted
        self._traffic, self._refreshes = dispatcher.traffic, Refreshes()
        self._shadows = Shadows(settings.experiments, ways.destinations, ways.sender, trials)
        in_flight, recorder = InFlightRequests(), Recorder(cache)
        self._engine = EngineTier(
            settings,
            dispatcher,
            in_flight,
            recorder,
            names=names,
            routers=placement.routers,
            tracer=tracer,
        )
        self._admit = Admit(
            settings,
            bodies=intake.bodies,
            chooser=ModelChooser(settings, placement.fleet),
            offers=intake.offers,
            salts=intake.salts,
            marks=marks,
            images=intake.images,
            wake=dispatcher.start,
            takes_tools=placement.fleet.takes_tools,
            caches=cache is not None,
            guards=guards,
            drawing=Drawing(shelf, trials, names, guards),
        )
        _share_requests(settings, together, in_flight, cache)
        self._before = cache_tiers(
            settings.cache,
            cache,
            self._engine,
            dispatcher=dispatcher,
            in_flight=in_flight,
            traffic=self._traffic,
            elsewhere=_joining(settings, together, self._engine, recorder, dispatcher),
        )

    def endpoint(self, endpoint: Endpoint, read: Read | None = None) -> GenerationEndpoint:
        """``read``: reads the requests of a dialect that this endpoint answers."""
        return GenerationEndpoint(
            endpoint,
            self._admit,
            tiers=[*self._before, self._engine],
            engine=self._engine,
            refreshes=self._refreshes,
            traffic=self._traffic,
            keep_alive_s=self._settings.gateway.keep_alive_s,
            read=read,
            shadows=self._shadows,
            guards=self._guards,
            noted=self._noted,
        )

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {"chat": self.endpoint(Endpoint.CHAT), "completions": self.endpoint(Endpoint.COMPLETIONS)}

    async def close(self) -> None:
        self._refreshes.stop()
        await self._shadows.close()


def _share_requests(
    settings: Settings, together: Together, in_flight: InFlightRequests, cache: CacheClient | None
) -> None:
    if cache is not None and settings.cache_joins:
        ports, shards = settings.network.private_ports, cache.shards.placement
        together.share_requests(in_flight, cache.memory, ports, shards)
        if settings.cache is not None and settings.cache.keep_beginnings:
            together.keep_beginnings(in_flight, cache.shards)


def _joining(
    settings: Settings, together: Together, engine: EngineTier, recorder: Recorder, dispatcher: Dispatcher
) -> JoinsElsewhere | None:
    """``None``: no other gateway can be joined."""
    if together.elsewhere is None:
        return None
    kept = settings.limits.max_stream_buffer_bytes
    return JoinsElsewhere(
        together.elsewhere,
        engine,
        recorder,
        beginnings=together.beginnings,
        dispatcher=dispatcher,
        keep_bytes=kept,
    )
