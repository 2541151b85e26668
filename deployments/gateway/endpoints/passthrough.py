"""What else a model's members offer under ``/v1/*``, ``/tokenize`` and ``/detokenize``: relayed unchanged."""

from __future__ import annotations

from deployments.gateway.endpoints.verbatim import Verbatim
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.services import Services
from serve_app.errors import NotFound
from serve_app.openai.bounds import BATCHED, count_texts, refuse_excess
from serve_app.openai.requests import parse_json, required_string


class PassThrough:
    """The model named in the JSON body decides where a request goes."""

    def __init__(self, services: Services, verbatim: Verbatim) -> None:
        self._services = services
        self._verbatim = verbatim

    async def __call__(self, exchange: Exchange) -> None:
        identity = self._services.identify(exchange)
        if exchange.method != "POST":
            raise NotFound(f"No such path: {exchange.method} {exchange.path}.", code="not_found")
        self._services.require_offered(exchange.path)
        timeout_s = self._services.timeout_s(exchange)
        limits = self._services.settings.limits
        body = await self._services.bodies.read(exchange, identity.tenant)
        fields = parse_json(body)
        weight = refuse_excess(fields, limits)
        texts = count_texts(fields, BATCHED)
        model = required_string(fields, "model")
        self._services.fingerprint(model)  # refuses an unknown one
        self._services.require_offered(exchange.path, model)
        exchange.response_headers["x-cache"] = "bypass"
        salt = self._services.prefix_salt(identity, fields)
        await self._verbatim.relay(
            exchange,
            model,
            body,
            fields,
            timeout_s,
            identity=identity,
            salt=salt,
            weight=max(weight, texts),
            in_parts=texts > weight,
        )
