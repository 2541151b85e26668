"""Reads a request of the Responses API with what it refers to, and stores its response before its last event.

The response is written when its last token is out and before the event that says so: a client
that has seen that event can go on with it at any gateway, whichever process dies then. No token waits for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec

from deployments.gateway.request.bodies import LONG_BYTES, let_others
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.responses.detached import DetachedExchange
from deployments.gateway.responses.guarding import StoredTexts
from deployments.gateway.responses.store_client import ResponseStoreClient, absent
from serve_app.dialects import Reading
from serve_app.dialects.responses import items as kinds
from serve_app.dialects.responses.dialect import read_alone, writer_of
from serve_app.dialects.responses.ids import ItemIds, is_output, response_of
from serve_app.dialects.responses.request import NAMES, TypedRequest, chat_fields, not_stored, read
from serve_app.dialects.responses.writer import ResponsesWriter
from serve_app.errors import BadRequest, NotFound, PromptlyError, ResponsesUnavailable
from serve_app.request.auth import Identity
from serve_app.stored_responses.values import UNFINISHED, History, NewItem, Outcome, Record

Items = Sequence[Mapping[str, Any]]
NO_PLACE = {
    Outcome.FULL: "it has no room",
    Outcome.TOO_LARGE: "the response is too large (responses.max_entry_bytes)",
}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}

logger = logging.getLogger("ray.serve")


class InBackground(Exception):
    """The request was read and found right; it is to run without its client."""

    def __init__(self, asked: TypedRequest, ids: ItemIds, items: bytes, reading: Reading) -> None:
        """``items``: its input as it is stored."""
        super().__init__()
        self.asked = asked
        self.ids = ids
        self.items = items
        self.reading = reading


class ResponsesReader:
    """``store`` is ``None`` where nothing is stored. ``texts``: what may be stored."""

    def __init__(self, store: ResponseStoreClient | None, texts: StoredTexts) -> None:
        self._store = store
        self._texts = texts

    async def __call__(self, exchange: Exchange, identity: Identity, fields: Mapping[str, Any]) -> Reading:
        """Raises: BadRequest, NotFound, OverCapacity, ResponsesUnavailable; InBackground."""
        if isinstance(exchange, DetachedExchange):
            return exchange.reading
        asked = read(fields)
        if self._store is None:
            return read_alone(asked, time.time)
        ids = ItemIds(uuid4().hex)
        history, first = await self._history(self._store, identity.tenant, asked, exchange)
        items = await self._with_named(self._store, identity.tenant, asked, history, exchange)
        await let_others(exchange.loaded_bytes)
        chat = chat_fields(asked, history, items)
        kept = b""
        if asked.request.wants_store:  # the chat passes its guards later, when its model is known
            asked, items = await self._texts.request(exchange, asked, items)
            kept = msgspec.json.encode(kinds.stored(items, ids))
        keeper = (
            ResponseKeeper(self._store, identity.tenant, asked, kept) if asked.request.wants_store else None
        )
        # A chain is named by its first response, so this one names itself if others may follow it.
        begins = first is None and keeper is not None
        session = ids.response if begins else first
        chat = chat | STREAMED if asked.request.background else chat
        reading = replace(self._reading(asked, ids, chat, keeper), session=session, begins_session=begins)
        if asked.request.background:
            raise InBackground(asked, ids, kept, reading)
        return reading

    def _reading(
        self, asked: TypedRequest, ids: ItemIds, chat: dict[str, Any], keeper: ResponseKeeper | None
    ) -> Reading:
        def writer(_: str, created: int) -> ResponsesWriter:
            made = writer_of(asked, ids, created, stored=keeper is not None, clock=time.time)
            if keeper is not None:
                keeper.writer = made
            return made

        return Reading(chat, writer, None if keeper is None else keeper.keep, names=NAMES)

    async def _history(
        self, store: ResponseStoreClient, tenant: str, asked: TypedRequest, exchange: Exchange
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Everything that was said before, the oldest first; and the id of the chain's first response."""
        request = asked.request
        if request.previous_response_id is not None:
            param, wanted, what = "previous_response_id", request.previous_response_id, "response"
            history = await store.call("history", tenant, wanted, store.bounds)
        elif request.conversation_id is not None:
            param, wanted, what = "conversation", request.conversation_id, "conversation"
            history = await store.call("conversation_items", tenant, wanted, store.bounds)
        else:
            return [], None
        if history.absence is not None:
            raise absent(what, wanted, history.absence, param)
        _refuse_unfit(store, history, wanted, param)
        return await loaded(exchange, history.parts), history.first

    async def _with_named(
        self, store: ResponseStoreClient, tenant: str, asked: TypedRequest, history: Items, exchange: Exchange
    ) -> Items:
        """The request's own items, with those that it only names."""
        named = kinds.references(asked.items)
        if not named:
            return asked.items
        if len(named) > len(set(named)):
            raise BadRequest("`input` names an item more than once.", param="input", code="invalid_value")
        known: dict[str, Mapping[str, Any]] = {str(item.get("id")): item for item in history}
        parts = await self._parts_of(store, tenant, [each for each in named if each not in known])
        known |= {str(item.get("id")): item for item in await loaded(exchange, parts)}
        return kinds.with_references(asked.items, known)

    async def _parts_of(
        self, store: ResponseStoreClient, tenant: str, named: Sequence[str]
    ) -> Sequence[bytes]:
        """The lists of items in which these are, of all responses together no more than of a chain."""
        needs_input: dict[str, bool] = {}
        for item_id in named:
            response_id = response_of(item_id)
            if response_id is not None:
                needs_input[response_id] = needs_input.get(response_id, False) or not is_output(item_id)
        found = History(depth=len(needs_input))
        _refuse_unfit(store, found, "input", "input")
        for response_id, with_input in needs_input.items():
            own = await store.call("own_items", tenant, response_id, with_input)
            found = History([*found.parts, *own.parts], size=found.size + own.size)
            _refuse_unfit(store, found, "input", "input")
        return found.parts


async def loaded(exchange: Exchange, parts: Sequence[bytes]) -> list[dict[str, Any]]:
    """The items of stored lists, or stored items, which the request holds from now on. Other requests go on
    between them.

    Raises:
        OverCapacity: the tenant's requests hold too many bytes.
    """
    exchange.load(sum(map(len, parts)))
    found: list[dict[str, Any]] = []
    size = 0
    for part in parts:
        said = msgspec.json.decode(part)
        found += said if isinstance(said, list) else [said]
        size += len(part)
        if size > LONG_BYTES:
            await let_others(size)
            size = 0
    return found


def _refuse_unfit(store: ResponseStoreClient, history: History, wanted: str, param: str) -> None:
    """Raises: BadRequest, NotFound: nothing can go on from there."""
    exceeded = store.bounds.exceeded(history)
    if exceeded is not None:
        raise BadRequest(
            f"`{param}`: {wanted!r} is too long to go on with: {exceeded}.",
            param=param,
            code="chain_too_long",
        )
    if history.status in UNFINISHED or history.status in ("failed", "cancelled"):
        raise BadRequest(
            f"`{param}`: the response {wanted!r} is {history.status}: nothing can go on from it.",
            param=param,
            code="invalid_value",
        )
    if history.broken:
        raise NotFound(
            f"An earlier response of {wanted!r} was deleted.", param=param, code="previous_response_not_found"
        )


class ResponseKeeper:
    """Stores one response when it is complete."""

    def __init__(self, store: ResponseStoreClient, tenant: str, asked: TypedRequest, items: bytes) -> None:
        self._store = store
        self._tenant = tenant
        self._asked = asked
        self._items = items
        self.writer: ResponsesWriter | None = None

    async def keep(self, last: bytes) -> bytes:
        """The last bytes; they say so if the response could not be stored.

        Raises:
            PromptlyError: it was to be fetched later, and cannot be.
        """
        writer, request = self.writer, self._asked.request
        assert writer is not None, "an answer ends through its writer"
        record = Record(
            id=writer.ids.response,
            tenant=self._tenant,
            status=writer.status,
            response=writer.response,
            input=self._items,
            output=writer.output,
            previous=request.previous_response_id,
            conversation=request.conversation_id,
            tokens=writer.tokens,
        )
        try:
            outcome = await self._store.call("put", record, new_items(record))
        except ResponsesUnavailable:
            if request.background:
                raise
            return not_stored(last)
        if outcome in (Outcome.FULL, Outcome.TOO_LARGE):
            logger.warning("a response was not stored: %s", outcome)
            if request.background:  # no client has it: it failed
                raise PromptlyError(f"The response was not stored: {NO_PLACE[outcome]}.", code="not_stored")
            return not_stored(last)
        return last


def new_items(record: Record) -> list[NewItem]:
    """What a response adds to its conversation."""
    if record.conversation is None:
        return []
    ids = ItemIds(record.id.removeprefix("resp_"))
    said = msgspec.json.decode(record.input) + msgspec.json.decode(record.output)
    return [
        NewItem(item["id"], msgspec.json.encode(item), kinds.spare_id(item, ids, place))
        for place, item in enumerate(said)
    ]
