"""``/health``, ``/ready`` and ``/v1/models``."""

from __future__ import annotations

import time

from deployments.gateway.http import Exchange
from deployments.gateway.services import Services
from serve_app.errors import UnknownModel


class Catalogue:
    """What is served, and whether it can answer."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._created = int(time.time())

    async def health(self, exchange: Exchange) -> None:
        """The process is up."""
        await exchange.respond_json({"status": "ok"})

    async def ready(self, exchange: Exchange) -> None:
        """Every configured model can answer."""
        now = time.monotonic()
        fleet = self._services.fleet
        models = {model: len(fleet.candidates(model, now)) for model in fleet.models}
        ready = self._services.primed and fleet.is_ready(now)
        body = {"status": "ready" if ready else "starting", "ready_replicas": models}
        await exchange.respond_json(body, status=200 if ready else 503)

    async def list_models(self, exchange: Exchange) -> None:
        self._services.identify(exchange)
        cards = [self._card(model) for model in self._services.model_ids]
        await exchange.respond_json({"object": "list", "data": cards})

    async def one_model(self, exchange: Exchange) -> None:
        self._services.identify(exchange)
        model = exchange.path.removeprefix("/v1/models/")
        if model not in self._services.model_ids:
            raise UnknownModel(model, self._services.model_ids)
        await exchange.respond_json(self._card(model))

    def _card(self, model: str) -> dict[str, str | int]:
        return {"id": model, "object": "model", "created": self._created, "owned_by": "promptly"}
