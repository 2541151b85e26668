"""One gateway: makes its parts, hands each the others that it uses, and ends them. Runs in any event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from deployments.gateway.accounts.accounts import GatewayAccounts, accounts_of
from deployments.gateway.app import GatewayApp
from deployments.gateway.endpoints.admin_plan import Planner
from deployments.gateway.endpoints.admin_requests import FindEverywhere, found_in
from deployments.gateway.endpoints.administering import admin_handlers
from deployments.gateway.endpoints.catalogue import Catalogue
from deployments.gateway.endpoints.console import Console
from deployments.gateway.endpoints.description import Description
from deployments.gateway.endpoints.messages import MessagesReader
from deployments.gateway.endpoints.relaying import relaying_handlers
from deployments.gateway.experiments.trials import Trials
from deployments.gateway.feedback.endpoint import feedback_handlers
from deployments.gateway.feedback.feedback import GatewayFeedback, feedback_of
from deployments.gateway.generation.generation import Generation
from deployments.gateway.guardrails.guards import GuardHeaders, guards_of
from deployments.gateway.lookup.priming import Priming
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.lookup.together import Together
from deployments.gateway.monitoring.monitor import AskOthers, Measured
from deployments.gateway.monitoring.observers import Observers
from deployments.gateway.monitoring.tracing import Tracing
from deployments.gateway.others.others import AskGateways
from deployments.gateway.placement.engine_status import EngineStatuses
from deployments.gateway.placement.external import ExternalUpstream
from deployments.gateway.placement.placement import Placement
from deployments.gateway.prompts.shelf import PromptShelf
from deployments.gateway.request.exchange import Handler
from deployments.gateway.request.finished import Sink
from deployments.gateway.request.images import IsPublic
from deployments.gateway.request.intake import Intake
from deployments.gateway.responses.api import ResponsesApi
from deployments.gateway.send.ways import Ways
from deployments.gateway.sign_in.sign_in import GatewaySignIn, oidc_settings
from deployments.platform.log_context import named_requests
from deployments.platform.log_redaction import redacted_logs
from deployments.wire.upstream import AnswerBounds, UpstreamPool
from serve_app.api.door import Door
from serve_app.engines.placement import gateway_bounds
from serve_app.media.addresses import is_public
from serve_app.model_choice.names import ModelNames
from serve_app.monitoring.metrics import Meter
from serve_app.openai.requests import Endpoint
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
        self._settings, self._names = settings, ModelNames.of(settings)
        traffic, self._marks = Traffic(), TenantMarks(tenant_secret or new_secret())
        self._tracing = Tracing(
            settings, [*engines.values(), *cache, embedder, responses, accounts, feedback]
        )
        secrets = _secrets(external, guard_headers or {}, client_secret)
        self._guards = guards_of(settings, self._names, guard_headers or {})
        self._lasting = _lasting(secrets)
        self._upstream = UpstreamPool(_answer_bounds(settings), secrets)
        self.together = together = Together(ask_gateways, gateway_bounds(settings)[0], host)
        self._placement = Placement(
            settings, engines, external, self._upstream, traffic, has_keys=keys is not None, together=together
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
        self._cache = _cache_client(settings, embedder, cache, self._marks)
        self._priming = Priming(self._cache)
        self._shelf = PromptShelf(settings.prompts, meter)
        self._trials = Trials(settings.experiments, meter, ask_others)
        self._feedback = feedback_of(settings, feedback, meter)
        later = [*_later(self._accounts, self._feedback), self._trials.take]
        self._observers = Observers(settings, self._names, meter, ask_others, sinks, later=later)
        self._observers.start(self._placement, traffic, self._cache, self._feedback)
        self._ways = Ways(settings, self._names, self._placement.admissions, self._upstream, traffic)
        self._generation = self._made_generation()
        self._responses = self._made_responses(responses)
        administering = self._administering(planner, find_everywhere)
        self.app = GatewayApp(
            self._answering(embedder) | self._describing() | administering,
            Door(settings),
            self._observers.finished,
            self._tracing.tracer,
            gate=self._intake.gate,
            auditor=None if self._accounts is None else self._accounts.audit,
            limits=settings.limits,
            part_of=together.share.of,
            room_of=together.share.room,
        )
        together.begin(self.app.demand, self.app.running, self._placement.shared, self._placement.heard)

    def _made_generation(self) -> Generation:
        return Generation(
            self._settings,
            self._names,
            self._intake,
            placement=self._placement,
            ways=self._ways,
            cache=self._cache,
            together=self.together,
            shelf=self._shelf,
            trials=self._trials,
            marks=self._marks,
            tracer=self._tracing.tracer,
            guards=self._guards,
            noted=self._feedback,
        )

    def _made_responses(self, store: DeploymentHandle[Any] | None) -> ResponsesApi:
        return ResponsesApi(
            self._settings,
            store,
            bodies=self._intake.bodies,
            offers=self._intake.offers,
            generating=partial(self._generation.endpoint, Endpoint.CHAT),
            finished=self._observers.finished,
            guards=self._guards,
        )

    # ---- handlers, by the names that the table of routes uses ----

    def _answering(self, embedder: DeploymentHandle[Any] | None) -> dict[str, Handler]:
        messages = MessagesReader(self._settings.gateway)
        relaying = relaying_handlers(
            self._settings,
            self._names,
            self._intake,
            self._ways,
            upstream=self._upstream,
            embedder=embedder,
            cache=self._cache,
            marks=self._marks,
            tracer=self._tracing.tracer,
            latency=self._observers.latency,
            guards=self._guards,
            part_of=self.together.share.of,
        )
        return {
            **self._generation.handlers,
            "messages": self._generation.endpoint(Endpoint.CHAT, messages),
            **self._responses.handlers,
            **relaying,
        }

    def _describing(self) -> dict[str, Handler]:
        catalogue = Catalogue(
            self._names, self._placement.fleet, self._statuses, self._priming, cache=self._cache
        )
        description = Description(self._names, has_keys=self._intake.has_keys)
        enabled = self._settings.gateway.console
        console = Console(description.number, enabled=enabled, signs_in=self._sign_in.has_console)
        return catalogue.handlers | description.handlers | console.handlers | self._sign_in.handlers

    def _administering(
        self, planner: Planner | None, find_everywhere: FindEverywhere | None
    ) -> dict[str, Handler]:
        dispatcher, cache = self._ways.dispatcher, self._cache
        handlers = admin_handlers(
            self._settings,
            self._names,
            self._intake,
            fleet=self._placement.fleet,
            statuses=self._statuses,
            observers=self._observers,
            traffic=dispatcher.traffic,
            trials=self._trials,
            cache=cache,
            accounts=self._accounts,
            planner=planner,
            find_everywhere=find_everywhere,
        )
        scored = self._trials.scored
        return handlers | feedback_handlers(self._intake.bodies, self._feedback, cache, dispatcher, scored)

    async def begun(self) -> None:
        """It knows who may use it, or has tried to learn it for a while."""
        if self._accounts is not None:
            await self._accounts.begun()

    def measured(self) -> Measured:
        """Figures that another gateway asks for."""
        measured = self._observers.watching.monitor.measured()
        return msgspec.structs.replace(measured, trials=self._trials.state())

    async def find_requests(self, query: Query) -> Found | None:
        """Requests that another gateway asks for; ``None`` where none are kept."""
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
        await self._generation.close()
        await self._shelf.stop()
        await self._trials.close()
        if self._cache is not None:
            await self._cache.close()
        if self._guards is not None:
            self._guards.close()
        await self._upstream.close()
        await self._tracing.close()
        self._observers.close()
        self._lasting.close()


def _known_by(accounts: GatewayAccounts | None) -> dict[str, Any]:
    """What the gate asks of the accounts."""
    if accounts is None:
        return {"managed": None, "quotas": None, "refused": None}
    return {"managed": accounts.keys, "quotas": accounts.quotas, "refused": accounts.refused}


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


def _answer_bounds(settings: Settings) -> AnswerBounds:
    return AnswerBounds(settings.limits.max_event_bytes, settings.limits.max_answer_bytes)
