"""``/v1/responses`` and what lies below it."""

from __future__ import annotations

import asyncio

import msgspec

from deployments.gateway.request.exchange import EVENT_STREAM, Exchange, Handler
from deployments.gateway.request.gate import uses_model
from deployments.gateway.responses.background import Background
from deployments.gateway.responses.reading import InBackground
from deployments.gateway.responses.store_client import ResponseStoreClient, absent
from serve_app.dialects.responses.stored import events_of
from serve_app.errors import BadRequest, MethodNotAllowed, NotFound
from serve_app.model_choice.offers import Offers
from serve_app.stored_responses.paging import page, page_of, query_of
from serve_app.stored_responses.values import UNFINISHED, Record

FOLLOW_PERIOD_S = 0.25
MAX_FOLLOW_PERIOD_S = 2.0
"""Between two looks at a response that is not finished: the first, and after a while."""

CREATE = "/v1/responses"
NOT_KEPT = "Responses are not stored here (responses.enabled)."


class CreateResponse:
    """``POST /v1/responses``. ``generate`` answers it like any chat; a request that is to run in the
    background comes back from it."""

    def __init__(self, offers: Offers, generate: Handler, background: Background | None) -> None:
        self._offers = offers
        self._generate = generate
        self._background = background

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await self._generate(exchange)
        except InBackground as work:
            assert self._background is not None, "nothing runs in the background without a store"
            model = work.asked.request.model
            self._offers.fingerprint(model)
            uses_model(exchange, model, self._offers.own(model))
            await self._background.start(exchange, work)


class StoredResponses:
    """One response: ``GET``, ``DELETE``, its ``input_items``, ``cancel``."""

    def __init__(
        self,
        store: ResponseStoreClient | None,
        background: Background | None,
        timeout_s: float,
        keep_alive_s: float,
    ) -> None:
        """``timeout_s``: how long a stream waits for a response that is not finished; ``keep_alive_s``: how
        often its client is told that it waits, 0: never."""
        self._store = store
        self._background = background
        self._timeout_s = timeout_s
        self._keep_alive_s = keep_alive_s

    async def one(self, exchange: Exchange) -> None:
        """Raises: NotFound, BadRequest, ResponsesUnavailable."""
        tenant, store = self._admitted(exchange)
        (wanted,) = _below(exchange, 1)
        if exchange.method == "DELETE":
            absence = await store.delete("delete", tenant, wanted)
            if absence is not None:
                raise absent("response", wanted, absence)
            if self._background is not None:
                self._background.stop(wanted)
            await exchange.respond_json({"id": wanted, "object": "response", "deleted": True})
            return
        query = query_of(exchange.query)
        record = await store.record(tenant, wanted)
        if query.get("stream", "false").lower() != "true":
            await exchange.respond(200, record.response)
            return
        if "starting_after" in query:
            raise BadRequest(
                "`starting_after`: the events of a stored response are fewer than those of the live one; "
                "read it from the beginning.",
                param="starting_after",
                code="unsupported_parameter",
            )
        if self._keep_alive_s and record.status in UNFINISHED:
            exchange.keep_alive(self._keep_alive_s)
        try:
            await exchange.run(self._replay(exchange, store, record), self._timeout_s)
        finally:
            await exchange.end_waiting()

    async def input_items(self, exchange: Exchange) -> None:
        """Raises: NotFound, BadRequest, ResponsesUnavailable."""
        tenant, store = self._admitted(exchange)
        wanted, _ = _below(exchange, 2)
        part = page_of(query_of(exchange.query))
        found = await store.call("own_items", tenant, wanted, True)
        if found.absence is not None:
            raise absent("response", wanted, found.absence)
        await exchange.respond_json(page(msgspec.json.decode(found.parts[0]), part))

    async def cancel(self, exchange: Exchange) -> None:
        """Raises: NotFound, BadRequest, ResponsesUnavailable."""
        tenant, store = self._admitted(exchange)
        wanted, _ = _below(exchange, 2)
        found = await store.call("cancel", tenant, wanted)
        if found.record is None:
            raise absent("response", wanted, found.absence)
        record: Record = found.record
        # One whose client waited is stored when it is complete: the store left it as it is.
        if not msgspec.json.decode(record.response).get("background"):
            raise BadRequest(
                "Only a response with `background: true` can be cancelled.",
                code="invalid_value",
                param="background",
            )
        if record.status == "cancelled" and self._background is not None:  # else it was complete by then
            self._background.stop(wanted)
        await exchange.respond(200, record.response)

    async def _replay(self, exchange: Exchange, store: ResponseStoreClient, record: Record) -> None:
        """Sends a stored response as a stream; waits for one that is not finished."""
        status, period_s = record.status, FOLLOW_PERIOD_S
        if status in UNFINISHED:
            while status in UNFINISHED:
                await asyncio.sleep(period_s)
                period_s = min(2 * period_s, MAX_FOLLOW_PERIOD_S)
                status = await store.call("status", record.tenant, record.id)
            record = await store.record(record.tenant, record.id)
        await exchange.respond(200, events_of(record.response), EVENT_STREAM, {"cache-control": "no-cache"})

    def _admitted(self, exchange: Exchange) -> tuple[str, ResponseStoreClient]:
        tenant = exchange.identity.tenant
        if self._store is None:
            raise NotFound(NOT_KEPT, code="not_stored")
        return tenant, self._store


def _below(exchange: Exchange, parts: int) -> list[str]:
    """The parts of the path below ``/v1/responses``."""
    found = exchange.path.removeprefix(f"{CREATE}/").split("/")
    if len(found) != parts:
        raise MethodNotAllowed(exchange.method, exchange.path, "POST")
    return found
