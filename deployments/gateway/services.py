"""What the gateway's endpoints share: settings, who is asking, which models there are, the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.serve.handle import DeploymentHandle

from deployments.gateway.lookup.refreshes import Refreshes
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.placement.engine_status import EngineStatuses
from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.exchange import Exchange
from serve_app.admission import FIRST_PRIORITY
from serve_app.errors import EmbedderOnly, Forbidden, UnknownModel
from serve_app.fleet import FleetTable
from serve_app.latency import LatencyWindows
from serve_app.model_choice.names import ModelNames
from serve_app.openai.requests import own_cache_salt, refuse_named_media
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import DEFAULT_TENANT, Identity, KeyRing, credentials_of, require_admin
from serve_app.request.deadline import request_timeout_s
from serve_app.request.paths import require_offered
from serve_app.request.tenant_marks import TenantMarks
from serve_app.routing import Router
from serve_app.settings import Settings
from serve_app.settings.fingerprint import fingerprint
from serve_app.traffic import Traffic

DEBUG_TIMING_HEADER = "x-debug-timing"
"""``1``: all of ``Server-Timing``, for keys that may see it."""


@dataclass(slots=True)
class Services:
    """Made once by the Gateway deployment and handed to every endpoint. ``keys`` is ``None`` without auth;
    ``admin_token`` is what opens ``/admin`` with ``auth: loopback``."""

    settings: Settings
    keys: KeyRing | None
    fleet: FleetTable
    cache: CacheClient | None
    embedder: DeploymentHandle[Any] | None
    latency: LatencyWindows
    routers: Mapping[str, Router]
    traffic: Traffic
    engines: EngineStatuses
    marks: TenantMarks
    admin_token: AdminToken | None = None
    refreshes: Refreshes = field(default_factory=Refreshes)
    primed: bool = False
    bodies: Bodies = field(init=False)
    fingerprints: dict[str, str] = field(init=False)
    offers: Mapping[str, frozenset[str]] = field(init=False)
    """By any name of a model: the paths that clients may ask for."""
    uncached_models: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.settings.limits)
        self.fingerprints = {model.id: fingerprint(model) for model in self.settings.models}
        offered = {model.id: model.offered_paths for model in self.settings.models}
        names = ModelNames.of(self.settings)
        self.offers = {name: offered[names.model_of(name)] for name in names.served}
        self.uncached_models = frozenset(model.id for model in self.settings.models if not model.cache)

    @property
    def model_ids(self) -> list[str]:
        """Every name that a client may use, the embedder's last."""
        embedder = self.settings.embedder
        return [*self.fingerprints, *([embedder.id] if embedder is not None else [])]

    def fingerprint(self, model: str) -> str:
        """Names the weights and settings behind an engine's model. Raises: UnknownModel, EmbedderOnly."""
        try:
            return self.fingerprints[model]
        except KeyError:
            embedder = self.settings.embedder
            if embedder is not None and model == embedder.id:
                raise EmbedderOnly(model) from None
            raise UnknownModel(model, self.model_ids) from None

    def require_offered(self, path: str, model: str | None = None) -> None:
        """See :func:`~serve_app.request.paths.require_offered`. Raises: NotFound."""
        require_offered(self.offers, path, model)

    def prefix_salt(self, identity: Identity, fields: Mapping[str, Any]) -> str | None:
        """What a request's prefix is kept under at engines; ``None`` where tenants are meant to share.
        Raises: BadRequest."""
        own = own_cache_salt(fields)
        if self.keys is not None and not self.settings.gateway.share_prefixes:
            refuse_named_media(fields)
        return None if self.settings.gateway.share_prefixes else self.marks.prefix_salt(identity.tenant, own)

    def session(self, identity: Identity, exchange: Exchange) -> str | None:
        """A tenant's own: others that name a session alike have another one."""
        named = exchange.headers.get(self.settings.gateway.session_header)
        return None if named is None else f"{identity.tenant}\0{named}"

    def timeout_s(self, exchange: Exchange) -> float:
        """The request's deadline. Raises: BadRequest."""
        return request_timeout_s(exchange.headers, self.settings.limits.request_timeout_s)

    def identify(self, exchange: Exchange) -> Identity:
        """Who asks; from now on the exchange knows what it may say of its time. Raises: Unauthorized."""
        identity = self._identity(exchange)
        asks = exchange.headers.get(DEBUG_TIMING_HEADER) == "1"
        # Without keys there is one tenant, and nobody else to learn about.
        exchange.shows_all_timing = self.keys is None or identity.admin or (identity.debug_timing and asks)
        return identity

    def _identity(self, exchange: Exchange) -> Identity:
        if self.keys is None:
            return Identity(DEFAULT_TENANT, False, FIRST_PRIORITY)
        return self.keys.identify(credentials_of(exchange.headers))

    def identify_admin(self, exchange: Exchange) -> Identity:
        """Raises: Unauthorized, Forbidden."""
        if self.keys is None:
            if self.admin_token is None:
                raise Forbidden("With `auth: none` nobody may administer: configure keys.", code="admin_only")
            self.admin_token.check(exchange.headers.get("authorization"))
            return Identity(DEFAULT_TENANT, True, FIRST_PRIORITY)
        identity = self.identify(exchange)
        require_admin(identity)
        return identity
