"""``/health``, ``/ready`` and ``/v1/models``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from deployments.gateway.lookup.priming import Priming
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.placement.engine_status import EngineStatus, EngineStatuses
from deployments.gateway.request.exchange import Exchange, Handler
from serve_app.fleet import FleetTable
from serve_app.model_choice.chooser import reported_context
from serve_app.model_choice.names import ModelNames
from serve_app.openai.models import ModelCard, model_card, model_list
from serve_app.request.auth import may_use, require_model


class Catalogue:
    """The models that are served, and whether each can answer."""

    def __init__(
        self,
        names: ModelNames,
        fleet: FleetTable,
        engines: EngineStatuses,
        priming: Priming,
        *,
        cache: CacheClient | None,
    ) -> None:
        self._names = names
        self._fleet = fleet
        self._engines = engines
        self._priming = priming
        self._cache = cache
        self._created = int(time.time())

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {
            "models": self.list_models,
            "model": self.one_model,
            "health": self.health,
            "ping": self.health,
            "ready": self.ready,
        }

    async def health(self, exchange: Exchange) -> None:
        """The process is up. A cache that fails is named: requests are answered without it."""
        body = {"status": "ok"}
        if self._cache is not None:
            body["cache"] = self._cache.health.state.value
        await exchange.respond_json(body)

    async def ready(self, exchange: Exchange) -> None:
        """Whether every configured model can answer. If not, it names the models whose engines have failed to
        start (`/admin/engines` has the reasons)."""
        now = time.monotonic()
        fleet = self._fleet
        models = {model: len(fleet.candidates(model, now)) for model in fleet.models}
        ready = self._priming.is_done and fleet.is_ready(now)
        body: dict[str, Any] = {"status": "ready" if ready else "starting", "ready_replicas": models}
        if not ready:
            body |= self._failed(await self._engines.read(), models)
        await exchange.respond_json(body, status=200 if ready else 503)

    def _failed(self, engines: Mapping[str, EngineStatus], ready: Mapping[str, int]) -> dict[str, Any]:
        failed = [model for model, engine in engines.items() if engine.has_failed and not ready.get(model)]
        return {"status": "failed", "failed": failed} if failed else {}

    async def list_models(self, exchange: Exchange) -> None:
        """Every name that the client may use: models, adapters and aliases, auto models, the embedder."""
        identity = exchange.identity
        cards = [self._card(name) for name in self._names if may_use(identity, name, self._own(name))]
        await exchange.respond_json(model_list(cards))

    async def one_model(self, exchange: Exchange) -> None:
        name = exchange.path.removeprefix("/v1/models/")
        if name not in set(self._names):
            raise self._names.unknown(name)
        require_model(exchange.identity, name, self._own(name))
        await exchange.respond_json(self._card(name))

    def _own(self, name: str) -> str:
        served = self._names.served.get(name)
        return name if served is None else served.name

    def _card(self, name: str) -> ModelCard:
        served = self._names.served.get(name)
        if served is None:
            return model_card(name, self._created)
        return model_card(
            name,
            self._created,
            root=served.name if served.name != name else None,
            parent=served.model if served.adapter is not None else None,
            max_model_len=reported_context(self._fleet.members(served.model)),
        )
