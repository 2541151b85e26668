"""One gateway: makes its parts, hands each the others that it uses, and ends them. Runs in any event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from deployments.gateway.accounts.accounts import GatewayAccounts, accounts_of
from deployments.gateway.app import GatewayApp
from deployments.gateway.endpoints.admin import Admin
from deployments.gateway.endpoints.admin_cache import AdminCache
from deployments.gateway.endpoints.admin_entries import AdminEntries
from deployments.gateway.endpoints.admin_experiments import AdminExperiments
from deployments.gateway.endpoints.admin_keys import AdminKeys
from deployments.gateway.endpoints.admin_limits import AdminLimits
from deployments.gateway.endpoints.admin_plan import AdminPlan, Planner
from deployments.gateway.endpoints.admin_requests import AdminRequests, FindEverywhere, found_in
from deployments.gateway.endpoints.admin_usage import AdminUsage
from deployments.gateway.endpoints.admin_users import AdminUsers
from deployments.gateway.endpoints.audio import AudioEndpoint
from deployments.gateway.endpoints.catalogue import Catalogue
from deployments.gateway.endpoints.console import Console
from deployments.gateway.endpoints.description import Description
from deployments.gateway.endpoints.embeddings import EmbeddingsEndpoint
from deployments.gateway.endpoints.items import ItemsEndpoint
from deployments.gateway.endpoints.messages import CountTokens, MessagesReader
from deployments.gateway.endpoints.passthrough import PassThrough
from deployments.gateway.endpoints.realtime import RealtimeEndpoint
from deployments.gateway.endpoints.verbatim import Verbatim
from deployments.gateway.experiments.shadows import Shadows
from deployments.gateway.experiments.trials import Trials
from deployments.gateway.feedback.endpoint import feedback_handlers
from deployments.gateway.feedback.feedback import GatewayFeedback, feedback_of
from deployments.gateway.generation.admit import Admit, Read
from deployments.gateway.generation.drawing import Drawing
from deployments.gateway.generation.endpoint import GenerationEndpoint, cache_tiers
from deployments.gateway.generation.engine_tier import EngineTier
from deployments.gateway.generation.joining import JoinsElsewhere
from deployments.gateway.generation.record import Recorder
from deployments.gateway.guardrails.guards import GuardHeaders, guards_of
from deployments.gateway.lookup.in_flight import InFlightRequests
from deployments.gateway.lookup.item_cache import ItemCache
from deployments.gateway.lookup.priming import Priming
from deployments.gateway.lookup.refreshes import Refreshes
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.lookup.together import Together
from deployments.gateway.monitoring.kept_news import KeptNews
from deployments.gateway.monitoring.latency_page import LatencyPage
from deployments.gateway.monitoring.monitor import AskOthers, Measured
from deployments.gateway.monitoring.observers import Observers
from deployments.gateway.others.others import AskGateways
from deployments.gateway.placement.engine_status import EngineStatuses
from deployments.gateway.placement.external import ExternalUpstream
from deployments.gateway.placement.placement import Placement
from deployments.gateway.placement.queue import Admission
from deployments.gateway.prompts.shelf import PromptShelf
from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.exchange import Handler
from deployments.gateway.request.finished import Sink
from deployments.gateway.request.images import IsPublic
from deployments.gateway.request.intake import Intake
from deployments.gateway.responses.api import ResponsesApi
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.pinned import Pins
from deployments.gateway.send.sender import Destination, Sender
from deployments.gateway.sign_in.sign_in import GatewaySignIn, oidc_settings
from deployments.platform.log_context import named_requests
from deployments.platform.log_redaction import redacted_logs
from deployments.platform.telemetry import RequestTracer, tracer_from_environment
from deployments.wire.upstream import AnswerBounds, UpstreamPool
from serve_app.api.door import Door
from serve_app.engines.placement import gateway_bounds
from serve_app.hedging import Hedge
from serve_app.media.addresses import is_public
from serve_app.model_choice.chooser import ModelChooser
from serve_app.model_choice.names import ModelNames
from serve_app.monitoring.metrics import Meter
from serve_app.openai.requests import Endpoint
from serve_app.quarantine import Quarantine
from serve_app.recent import Found, Query
from serve_app.redaction import Redactor
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import KeySources
from serve_app.request.tenant_marks import TenantMarks, new_secret
from serve_app.settings import Settings
from serve_app.traffic import Traffic

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


class GatewayRuntime:
    """Everything that one gateway owns. Made inside a running event loop; ``close`` ends it.

    It is long because it is all of the wiring: there is no logic here, and no other object knows every part.
    """

    def __init__(
        self,
        settings: Settings,
        keys: KeySources | None,
        engines: Mapping[str, DeploymentHandle[Any]],
        *,
        external: Sequence[ExternalUpstream] = (),
        embedder: DeploymentHandle[Any] | None = None,
        cache: Sequence[DeploymentHandle[Any]] = (),
        responses: DeploymentHandle[Any] | None = None,
        accounts: DeploymentHandle[Any] | None = None,
        feedback: DeploymentHandle[Any] | None = None,
        tenant_secret: bytes | None = None,
        admin_token: AdminToken | None = None,
        client_secret: str | None = None,
        is_public: IsPublic = is_public,
        sinks: Sequence[Sink] = (),
        meter: Meter | None = None,
        ask_others: AskOthers | None = None,
        find_everywhere: FindEverywhere | None = None,
        planner: Planner | None = None,
        guard_headers: GuardHeaders | None = None,
        ask_gateways: AskGateways | None = None,
        host: str = "",
    ) -> None:
        """``tenant_secret`` is the same for all gateways of an application (see ``TenantMarks``); a gateway
        that is alone may make its own. ``is_public`` judges addresses that images are fetched from.
        ``sinks`` are given the records of finished requests, besides the gateway's own. ``meter`` takes the
        metrics; ``ask_others`` asks all gateways what they have measured, ``find_everywhere`` for their
        newest requests. ``ask_gateways``, ``host``: see ``Together``. ``planner`` sizes the engines.
        ``client_secret``: see ``GatewaySignIn``."""
        self._settings, self._planner = settings, planner
        self._names = ModelNames.of(settings)
        self._traffic, self._marks = Traffic(), TenantMarks(tenant_secret or new_secret())
        self._tracer, self._news = _traces(settings, engines, *cache, embedder, responses, accounts, feedback)
        secrets = _secrets(external, guard_headers or {}, client_secret)
        self._guards = guards_of(settings, self._names, guard_headers or {})
        self._lasting = _lasting(secrets)
        self._upstream = UpstreamPool(_answer_bounds(settings), secrets)
        self.together = Together(ask_gateways, gateway_bounds(settings)[0], host)
        share = self.together.share
        self._placement = Placement(
            settings, engines, external, self._upstream, self._traffic, has_keys=keys is not None, share=share
        )
        self._accounts = accounts_of(settings, accounts, self._names, self._placement.fleet, meter)
        self._sign_in = GatewaySignIn(oidc_settings(settings), self._marks.secret, client_secret)
        self._intake = Intake(
            settings,
            self._names,
            self._placement.fleet,
            self._marks,
            keys=keys,
            signed_in=self._sign_in,
            **_known_by(self._accounts),
            admin_token=admin_token,
            is_public=is_public,
        )
        self._statuses = EngineStatuses(engines, settings)
        self._embedder, self._response_store = embedder, responses
        self._cache = _cache_client(settings, embedder, cache, self._marks)
        self._priming, self._refreshes = Priming(self._cache), Refreshes()
        self._shelf = PromptShelf(settings.prompts, meter)
        self._trials = Trials(settings.experiments, meter, ask_others)
        self._feedback = feedback_of(settings, feedback, meter)
        later = [*_later(self._accounts, self._feedback), self._trials.take]
        self._observers = Observers(settings, self._names, meter, ask_others, sinks, later=later)
        self._observers.start(self._placement, self._traffic, self._cache, self._feedback)
        self._find_everywhere = find_everywhere
        self._dispatcher = self._build_dispatcher()
        self._in_flight = InFlightRequests()
        _share_requests(settings, self.together, self._in_flight, self._cache)
        handlers = self._generating() | self._relaying() | self._describing() | self._administering()
        self.app = GatewayApp(
            handlers,
            Door(settings),
            self._observers.finished,
            self._tracer,
            gate=self._intake.gate,
            auditor=None if self._accounts is None else self._accounts.audit,
            limits=settings.limits,
            part_of=share.of,
        )
        self.together.begin(self.app.demand, self._placement.shared)

    def _build_dispatcher(self) -> Dispatcher:
        settings = self._settings
        destinations = _destinations(settings, self._names, self._placement.admissions)
        self._pins = Pins(
            destinations,
            self._traffic,
            max_attempts=settings.gateway.max_attempts,
            max_message_bytes=settings.limits.max_event_bytes,
            answer_timeout_s=settings.limits.first_token_timeout_s,
        )
        sender = Sender(self._upstream, settings.limits)
        self._shadows = Shadows(settings.experiments, destinations, sender, self._trials)
        return Dispatcher(
            destinations,
            sender,
            Quarantine(settings.limits.quarantine_s),
            self._traffic,
            max_attempts=settings.gateway.max_attempts,
        )

    # ---- handlers, by the names that the table of routes uses ----

    def _generating(self) -> dict[str, Handler]:
        """Both endpoints and the dialects of chats, on the same tiers."""
        settings, in_flight, recorder = self._settings, self._in_flight, Recorder(self._cache)
        engine = EngineTier(
            settings,
            self._dispatcher,
            in_flight,
            recorder,
            names=self._names,
            routers=self._placement.routers,
            tracer=self._tracer,
        )
        admit = Admit(
            settings,
            bodies=self._intake.bodies,
            chooser=ModelChooser(settings, self._placement.fleet),
            offers=self._intake.offers,
            salts=self._intake.salts,
            marks=self._marks,
            images=self._intake.images,
            wake=self._dispatcher.start,
            takes_tools=self._placement.fleet.takes_tools,
            caches=self._cache is not None,
            guards=self._guards,
            drawing=Drawing(self._shelf, self._trials, self._names, self._guards),
        )
        before = cache_tiers(
            settings.cache,
            self._cache,
            engine,
            dispatcher=self._dispatcher,
            in_flight=in_flight,
            traffic=self._traffic,
            elsewhere=_joining(settings, self.together, engine, recorder, self._dispatcher),
        )

        def generating(endpoint: Endpoint, read: Read | None = None) -> GenerationEndpoint:
            return GenerationEndpoint(
                endpoint,
                admit,
                tiers=[*before, engine],
                engine=engine,
                refreshes=self._refreshes,
                traffic=self._traffic,
                keep_alive_s=settings.gateway.keep_alive_s,
                read=read,
                shadows=self._shadows,
                guards=self._guards,
                noted=self._feedback,
            )

        self._responses = ResponsesApi(
            settings,
            self._response_store,
            bodies=self._intake.bodies,
            offers=self._intake.offers,
            generating=partial(generating, Endpoint.CHAT),
            finished=self._observers.finished,
            guards=self._guards,
        )
        return self._responses.handlers | {
            "chat": generating(Endpoint.CHAT),
            "completions": generating(Endpoint.COMPLETIONS),
            "messages": generating(Endpoint.CHAT, MessagesReader(settings.gateway)),
        }

    def _relaying(self) -> dict[str, Handler]:
        offers, settings = self._intake.offers, self._settings
        verbatim = Verbatim(
            bodies=self._intake.bodies,
            offers=offers,
            salts=self._intake.salts,
            dispatcher=self._dispatcher,
            tracer=self._tracer,
            limits=settings.limits,
            guards=self._guards,
        )
        item_cache = _item_cache(settings, self._cache)
        audio = AudioEndpoint(
            settings,
            bodies=self._intake.bodies,
            offers=offers,
            dispatcher=self._dispatcher,
            cache=item_cache,
            names=self._names,
            tracer=self._tracer,
            latency=self._observers.latency,
            guards=self._guards,
        )
        items = ItemsEndpoint(
            offers, verbatim, item_cache, images=self._intake.images, names=self._names, traffic=self._traffic
        )
        embeddings = EmbeddingsEndpoint(
            verbatim,
            items,
            embedder=settings.embedder,
            handle=self._embedder,
            marks=self._marks,
            limits=settings.limits,
            part_of=self.together.share.of,
        )
        return {
            "audio": audio,
            "embeddings": embeddings,
            "items": items,
            "count_tokens": CountTokens(verbatim, self._intake.images, MessagesReader(settings.gateway)),
            "realtime": RealtimeEndpoint(
                settings,
                offers=offers,
                pins=self._pins,
                marks=self._marks,
                redactor_of=self._upstream.redactor,
                tracer=self._tracer,
                latency=self._observers.latency,
                traffic=self._traffic,
                guards=self._guards,
                part_of=self.together.share.of,
            ),
            "relay": PassThrough(offers, verbatim),
        }

    def _describing(self) -> dict[str, Handler]:
        catalogue = Catalogue(
            self._names, self._placement.fleet, self._statuses, self._priming, cache=self._cache
        )
        description = Description(self._names, has_keys=self._intake.has_keys)
        enabled = self._settings.gateway.console
        console = Console(description.number, enabled=enabled, signs_in=self._sign_in.has_console)
        return _describing(catalogue, description, console) | self._sign_in.handlers

    def _administering(self) -> dict[str, Handler]:
        bodies, settings = self._intake.bodies, self._settings
        managed = [model.id for model in settings.models if model.engine is not None]
        admin = Admin(
            managed=managed,
            fleet=self._placement.fleet,
            engines=self._statuses,
            latency=LatencyPage(self._observers.watching.monitor, self._observers.latency),
            watching=self._observers.watching,
            traffic=self._traffic,
        )
        usage, cache = AdminUsage(self._accounts), AdminCache(bodies, self._cache)
        entries = AdminEntries(
            bodies, self._cache, settings=settings, names=self._names, offers=self._intake.offers
        )
        told = self._trials.scored
        return feedback_handlers(bodies, self._feedback, self._cache, self._dispatcher, told) | {
            **_showing(admin),
            "admin_audit": usage.audit,
            "admin_cache": cache.cache,
            "admin_feedback": cache.feedback,
            "admin_entries": entries,
            **_keeping(bodies, self._accounts, self._names),
            "admin_plan": AdminPlan(settings, self._planner),
            "admin_requests": AdminRequests(self._observers.recent, self._find_everywhere),
            "admin_usage": usage.usage,
            **AdminExperiments(bodies, self._trials).handlers,
        }

    async def begun(self) -> None:
        """It knows who may use it, or has tried to learn it for a while."""
        if self._accounts is not None:
            await self._accounts.begun()

    def measured(self) -> Measured:
        """For another gateway."""
        return _measured(self._observers, self._trials)

    async def find_requests(self, query: Query) -> Found | None:
        """For another gateway; ``None`` where no requests are kept."""
        recent = self._observers.recent
        return None if recent is None else await found_in(recent, query)

    async def close(self) -> None:
        await self.together.close()
        await self._observers.stop()
        self._priming.stop()
        await self._responses.close()
        await self._placement.close()
        await self._intake.close()
        await self._sign_in.close()
        self._observers.close()  # accounts and feedback take the last requests
        for owner in (self._accounts, self._feedback):
            if owner is not None:
                await owner.close()
        self._refreshes.stop()
        await self._shelf.stop()
        await self._shadows.close()
        await self._trials.close()
        if self._cache is not None:
            await self._cache.close()
        if self._guards is not None:
            self._guards.close()
        await self._upstream.close()
        await _end(self._tracer, self._news)
        self._observers.close()
        self._lasting.close()


def _joining(
    settings: Settings, together: Together, engine: EngineTier, recorder: Recorder, dispatcher: Dispatcher
) -> JoinsElsewhere | None:
    """``None``: no other gateway can be joined."""
    if together.elsewhere is None:
        return None
    kept = settings.limits.max_stream_buffer_bytes
    return JoinsElsewhere(together.elsewhere, engine, recorder, dispatcher=dispatcher, keep_bytes=kept)


def _showing(admin: Admin) -> dict[str, Handler]:
    return {
        "admin_alerts": admin.alerts,
        "admin_engines": admin.engines,
        "admin_fleet": admin.fleet,
        "admin_latency": admin.latency,
        "admin_traffic": admin.traffic,
    }


def _known_by(accounts: GatewayAccounts | None) -> dict[str, Any]:
    """What the gate asks of the accounts."""
    if accounts is None:
        return {"managed": None, "quotas": None, "refused": None}
    return {"managed": accounts.keys, "quotas": accounts.quotas, "refused": accounts.refused}


def _keeping(bodies: Bodies, accounts: GatewayAccounts | None, names: ModelNames) -> dict[str, Handler]:
    keys = AdminKeys(bodies, accounts, frozenset(names))
    return {
        "admin_key": keys.one,
        "admin_key_rotate": keys.rotate,
        "admin_keys": keys.all,
        "admin_limits": AdminLimits(bodies, accounts, names),
        "admin_refused_users": AdminUsers(bodies, accounts),
    }


def _traces(
    settings: Settings,
    engines: Mapping[str, DeploymentHandle[Any]],
    *others: DeploymentHandle[Any] | None,
) -> tuple[RequestTracer | None, KeptNews]:
    """What traces requests, and tells all deployments which are kept."""
    news = KeptNews([*engines.values(), *others])
    return tracer_from_environment(os.environ, settings.traces, news), news


async def _end(tracer: RequestTracer | None, news: KeptNews) -> None:
    await news.close()
    if tracer is not None:
        tracer.flush()
        await asyncio.to_thread(tracer.shut_down)


def _secrets(
    external: Sequence[ExternalUpstream], guard_headers: GuardHeaders, client_secret: str | None
) -> list[str]:
    """What no log line may hold."""
    found = [value for each in external for value in each.report.headers.values()]
    found += [value for each in guard_headers.values() for value in each.values()]
    return [*found, client_secret] if client_secret else found


def _lasting(secrets: Sequence[str]) -> ExitStack:
    """What holds as long as the gateway runs."""
    lasting = ExitStack()
    lasting.enter_context(named_requests())
    lasting.enter_context(redacted_logs(Redactor(secrets)))
    return lasting


def _later(accounts: GatewayAccounts | None, feedback: GatewayFeedback | None) -> list[Sink]:
    """Those that take finished requests for their owners."""
    sinks: list[Sink] = [] if accounts is None else [accounts.usage.take]
    return sinks if feedback is None else [*sinks, feedback.take]


def _measured(observers: Observers, trials: Trials) -> Measured:
    return msgspec.structs.replace(observers.watching.monitor.measured(), trials=trials.state())


def _describing(catalogue: Catalogue, description: Description, console: Console) -> dict[str, Handler]:
    return {
        "models": catalogue.list_models,
        "model": catalogue.one_model,
        "health": catalogue.health,
        "ping": catalogue.health,
        "ready": catalogue.ready,
        "version": description.version,
        "openapi": description.openapi,
        "docs": description.docs,
        "root": console.root,
        "console": console.page,
        "console_file": console.file,
    }


def _cache_client(
    settings: Settings,
    embedder: DeploymentHandle[Any] | None,
    cache: Sequence[DeploymentHandle[Any]],
    marks: TenantMarks,
) -> CacheClient | None:
    rules = settings.cache_with_models
    if rules is None or embedder is None or not cache:
        return None
    return CacheClient(rules, embedder, cache, marks)


def _share_requests(
    settings: Settings, together: Together, in_flight: InFlightRequests, cache: CacheClient | None
) -> None:
    if cache is not None and settings.cache_joins:
        ports, shards = settings.network.private_ports, cache.shards.placement
        together.share_requests(in_flight, cache.memory, ports, shards)


def _item_cache(settings: Settings, cache: CacheClient | None) -> ItemCache | None:
    if settings.cache is None or cache is None or settings.cache.item_bytes == 0:
        return None
    uncached = [model.id for model in settings.models if not model.cache]
    return ItemCache(cache.memory, cache.expiry, uncached, settings.cache.partition_by)


def _answer_bounds(settings: Settings) -> AnswerBounds:
    return AnswerBounds(settings.limits.max_event_bytes, settings.limits.max_answer_bytes)


def _destinations(
    settings: Settings, names: ModelNames, admissions: Mapping[str, Admission]
) -> dict[str, Destination]:
    """By any name of a model, an adapter or an alias."""
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
