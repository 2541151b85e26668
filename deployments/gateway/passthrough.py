"""Everything else an engine offers under ``/v1/*``, ``/tokenize`` and ``/detokenize``: relayed unchanged."""

from __future__ import annotations

from deployments.gateway.http import Exchange
from deployments.gateway.relay import Relay
from deployments.gateway.services import Services
from serve_app.errors import NotFound, UnknownModel
from serve_app.openai.requests import parse_json, required_string


class PassThrough:
    """The model named in the JSON body decides where a request goes."""

    def __init__(self, services: Services, relay: Relay) -> None:
        self._services = services
        self._relay = relay

    async def __call__(self, exchange: Exchange) -> None:
        self._services.identify(exchange)
        if exchange.method != "POST":
            raise NotFound(f"No such path: {exchange.method} {exchange.path}.", code="not_found")
        body = await exchange.read_body(self._services.settings.limits.max_body_bytes)
        model = required_string(parse_json(body), "model")
        if model not in self._services.fingerprints:
            raise UnknownModel(model, self._services.model_ids)
        exchange.response_headers["x-cache"] = "bypass"
        await exchange.run_while_connected(self._relay.verbatim(exchange, model, body))
