"""Other paths that a model's members offer, under ``/v1/*``: relayed unchanged."""

from __future__ import annotations

from deployments.gateway.endpoints.verbatim import Verbatim
from deployments.gateway.request.exchange import Exchange
from serve_app.errors import NotFound
from serve_app.model_choice.offers import Offers
from serve_app.openai.bounds import BATCHED, count_texts


class PassThrough:
    """The model named in the JSON body decides where a request goes."""

    def __init__(self, offers: Offers, verbatim: Verbatim) -> None:
        self._offers = offers
        self._verbatim = verbatim

    async def __call__(self, exchange: Exchange) -> None:
        identity = exchange.identity
        if exchange.method != "POST":
            raise NotFound(f"No such path: {exchange.method} {exchange.path}.", code="not_found")
        self._offers.require(exchange.path)
        asked = self._verbatim.offered(await self._verbatim.read(exchange, identity))
        if self._verbatim.guards is not None:
            self._verbatim.guards.refuse_unseen_answer(asked.model, identity.tenant, exchange.path)
        exchange.response_headers["x-cache"] = "bypass"
        texts = count_texts(asked.fields, BATCHED)
        weight = max(asked.weight, texts)
        await self._verbatim.relay(asked, weight=weight, in_parts=texts > asked.weight)
