"""The Responses deployment: the calls that gateways make, each with the time of this process's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from deployments.responses.store.base import ResponseStore
from deployments.responses.store.registry import open_store
from deployments.wire.owner import Ownership, StoreOwner
from serve_app.settings import ResponsesSettings
from serve_app.settings.network import ANY_PORT
from serve_app.stored_responses.values import (
    Absence,
    Added,
    ChainBounds,
    Conversation,
    Found,
    FoundConversation,
    History,
    Listed,
    NewItem,
    Outcome,
    Part,
    Record,
    StoreError,
    StoreStats,
)
from serve_app.wire.calls import RESPONSES

OWNS = Ownership(
    name="responses",
    interface=RESPONSES,
    failure=StoreError,
    sweep_period_s=30.0,
    not_open="responses are not stored",
    not_swept="expired responses were not removed",
)


class Responses(StoreOwner[ResponseStore]):
    """It has many methods because Serve calls one class and gateways have that many calls; the store does
    the work. While the file cannot be opened, responses are answered and not stored.
    """

    async def __init__(self, settings: ResponsesSettings, *, ports: range = ANY_PORT) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__(OWNS, ports)
        self._settings = settings
        await self.begin()

    async def open_store(self) -> ResponseStore:
        return await asyncio.to_thread(open_store, self._settings, time.time())

    async def put(self, record: Record, items: Sequence[NewItem]) -> Outcome:
        return await self.store.put(record, items, time.time())

    async def get(self, tenant: str, response_id: str) -> Found:
        return await self.store.get(tenant, response_id, time.time())

    async def history(self, tenant: str, response_id: str, bounds: ChainBounds) -> History:
        return await self.store.history(tenant, response_id, bounds, time.time())

    async def status(self, tenant: str, response_id: str) -> str | None:
        return await self.store.status(tenant, response_id, time.time())

    async def own_items(self, tenant: str, response_id: str, with_input: bool) -> History:
        return await self.store.own_items(tenant, response_id, with_input, time.time())

    async def delete(self, tenant: str, response_id: str) -> Absence | None:
        return await self.store.delete(tenant, response_id, time.time())

    async def cancel(self, tenant: str, response_id: str) -> Found:
        return await self.store.cancel(tenant, response_id, time.time())

    async def beat(self, owner: str, running: Sequence[str]) -> list[str]:
        return await self.store.beat(owner, running, time.time())

    async def create_conversation(
        self, tenant: str, conversation: Conversation, items: Sequence[NewItem]
    ) -> Outcome:
        return await self.store.create_conversation(tenant, conversation, items, time.time())

    async def conversation(self, tenant: str, conversation_id: str) -> FoundConversation:
        return await self.store.conversation(tenant, conversation_id, time.time())

    async def set_metadata(self, tenant: str, conversation_id: str, metadata: bytes) -> FoundConversation:
        return await self.store.set_metadata(tenant, conversation_id, metadata, time.time())

    async def delete_conversation(self, tenant: str, conversation_id: str) -> Absence | None:
        return await self.store.delete_conversation(tenant, conversation_id, time.time())

    async def conversation_items(self, tenant: str, conversation_id: str, bounds: ChainBounds) -> History:
        return await self.store.conversation_items(tenant, conversation_id, bounds, time.time())

    async def listed_items(self, tenant: str, conversation_id: str, part: Part) -> Listed:
        return await self.store.listed_items(tenant, conversation_id, part, time.time())

    async def conversation_item(self, tenant: str, conversation_id: str, item_id: str) -> Listed:
        return await self.store.conversation_item(tenant, conversation_id, item_id, time.time())

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[NewItem]) -> Added:
        return await self.store.add_items(tenant, conversation_id, items, time.time())

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Absence | None:
        return await self.store.delete_item(tenant, conversation_id, item_id, time.time())

    async def stats(self) -> StoreStats:
        if self._opened is None:
            return StoreStats(error=self._error)
        return await self._opened.stats()
