"""``/v1/conversations``: items that several responses share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec

from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.responses.guarding import StoredTexts
from deployments.gateway.responses.store_client import ResponseStoreClient, absent
from serve_app.dialects.responses import items as kinds
from serve_app.dialects.responses.ids import ItemIds
from serve_app.dialects.responses.metadata import refuse_metadata
from serve_app.errors import BadRequest, NotFound, ResponsesUnavailable
from serve_app.openai.depth import refuse_deep
from serve_app.openai.requests import parse_json
from serve_app.settings import LimitSettings
from serve_app.stored_responses.paging import listing, no_such_item, page_of, query_of
from serve_app.stored_responses.values import Conversation, NewItem, Outcome

MAX_NEW_ITEMS = 20
"""In one request; OpenAI's own bound."""

NOT_KEPT = "Conversations are not stored here (responses.enabled)."


class Conversations:
    """Create, read, change and delete them, and their items."""

    def __init__(
        self,
        bodies: Bodies,
        store: ResponseStoreClient | None,
        limits: LimitSettings,
        texts: StoredTexts,
    ) -> None:
        """``texts``: what may be stored."""
        self._texts = texts
        self._bodies = bodies
        self._store = store
        self._limits = limits

    async def create(self, exchange: Exchange) -> None:
        """Raises: BadRequest, ResponsesUnavailable."""
        tenant, store = self._admitted(exchange)
        fields = await self._fields(exchange, tenant)
        ids = ItemIds(uuid4().hex)
        made = Conversation(
            id=f"conv_{ids.unique}", created=int(time.time()), metadata=_metadata(fields.get("metadata"))
        )
        items = _new_items(fields.get("items"), ids)
        if await store.call("create_conversation", tenant, made, items) is not Outcome.STORED:
            raise ResponsesUnavailable("it has no room")
        await _respond(exchange, made)

    async def one(self, exchange: Exchange) -> None:
        """``GET``, ``POST`` (metadata), ``DELETE``. Raises: NotFound, BadRequest, ResponsesUnavailable."""
        tenant, store = self._admitted(exchange)
        wanted = _part(exchange, 0)
        if exchange.method == "DELETE":
            absence = await store.delete("delete_conversation", tenant, wanted)
            if absence is not None:
                raise absent("conversation", wanted, absence)
            await exchange.respond_json({"id": wanted, "object": "conversation.deleted", "deleted": True})
            return
        if exchange.method == "POST":
            fields = await self._fields(exchange, tenant, required="metadata")
            found = await store.call("set_metadata", tenant, wanted, _metadata(fields.get("metadata")))
            if found.is_full:
                raise ResponsesUnavailable("it has no room")
        else:
            found = await store.call("conversation", tenant, wanted)
        if found.conversation is None:
            raise absent("conversation", wanted, found.absence)
        await _respond(exchange, found.conversation)

    async def items(self, exchange: Exchange) -> None:
        """``GET`` lists, ``POST`` adds. Raises: NotFound, BadRequest, ResponsesUnavailable."""
        tenant, store = self._admitted(exchange)
        wanted = _part(exchange, 0)
        if exchange.method == "POST":
            fields = await self._fields(exchange, tenant, required="items")
            new = _new_items(fields.get("items"), ItemIds(uuid4().hex))
            added = await store.call("add_items", tenant, wanted, new)
            if added.absence is not None:
                raise absent("conversation", wanted, added.absence)
            if added.outcome is not Outcome.STORED:
                raise ResponsesUnavailable("it has no room")
            shown = [
                {**msgspec.json.decode(each.item), "id": item_id}
                for each, item_id in zip(new, added.ids, strict=True)
            ]
            await exchange.respond_json(listing(shown, has_more=False))
            return
        part = page_of(query_of(exchange.query))
        found = await store.call("listed_items", tenant, wanted, part)
        if found.after_is_unknown:
            raise no_such_item(part)
        if found.absence is not None:
            raise absent("conversation", wanted, found.absence)
        await exchange.respond_json(
            listing([msgspec.json.decode(each) for each in found.items], has_more=found.has_more)
        )

    async def item(self, exchange: Exchange) -> None:
        """``GET``, ``DELETE``. Raises: NotFound, ResponsesUnavailable."""
        tenant, store = self._admitted(exchange)
        wanted, item_id = _part(exchange, 0), _part(exchange, 2)
        if exchange.method == "DELETE":
            absence = await store.delete("delete_item", tenant, wanted, item_id)
            if absence is not None:
                raise absent("item", item_id, absence)
            found = await store.call("conversation", tenant, wanted)
            if found.conversation is None:
                raise absent("conversation", wanted, found.absence)
            await _respond(exchange, found.conversation)
            return
        found = await store.call("conversation_item", tenant, wanted, item_id)
        if found.absence is not None:
            raise absent("conversation", wanted, found.absence)
        if not found.items:
            raise absent("item", item_id, None)
        await exchange.respond(200, found.items[0])

    async def _fields(
        self, exchange: Exchange, tenant: str, *, required: str | None = None
    ) -> dict[str, Any]:
        """``required``: a field that may be ``null``, but must be there. Raises: BadRequest."""
        body = await self._bodies.read(exchange, tenant)
        fields = parse_json(body) if body else {}
        if required is not None and required not in fields:
            raise BadRequest(f"Missing required field `{required}`.", param=required, code="missing_field")
        refuse_deep(fields, self._limits.max_json_depth)
        given = {name: fields[name] for name in ("items", "metadata") if fields.get(name)}
        items, metadata = await self._texts.items(exchange, given.get("items"), given.get("metadata"))
        return {**fields, "items": items, "metadata": metadata}

    def _admitted(self, exchange: Exchange) -> tuple[str, ResponseStoreClient]:
        tenant = exchange.identity.tenant
        if self._store is None:
            raise NotFound(NOT_KEPT, code="not_stored")
        return tenant, self._store


async def _respond(exchange: Exchange, conversation: Conversation) -> None:
    await exchange.respond_json(
        {
            "id": conversation.id,
            "object": "conversation",
            "created_at": conversation.created,
            "metadata": msgspec.Raw(conversation.metadata),
        }
    )


def _part(exchange: Exchange, place: int) -> str:
    """A part of the path below ``/v1/conversations``."""
    return exchange.path.removeprefix("/v1/conversations/").split("/")[place]


def _metadata(given: Any) -> bytes:
    if not isinstance(given or {}, dict):
        raise BadRequest("`metadata` must be an object.", param="metadata", code="invalid_value")
    refuse_metadata(given or {})
    return msgspec.json.encode(given or {})


def _new_items(given: Any, ids: ItemIds) -> Sequence[NewItem]:
    """Items as they are stored. Raises: BadRequest: one of them is wrong."""
    items = given or []
    if not isinstance(items, list) or len(items) > MAX_NEW_ITEMS:
        raise BadRequest(
            f"`items` must be a list of at most {MAX_NEW_ITEMS} items.", param="items", code="invalid_value"
        )
    if not all(isinstance(item, dict) for item in items):
        raise BadRequest("`items` must be objects.", param="items", code="invalid_value")
    listed = kinds.listed(items)
    kinds.check(listed)
    return [
        NewItem(item["id"], msgspec.json.encode(item), kinds.spare_id(item, ids, place))
        for place, item in enumerate(kinds.stored(listed, ids))
    ]
