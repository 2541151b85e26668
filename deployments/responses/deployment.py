"""The Responses deployment: the calls that gateways make, each with the time of this process's clock.

There is one replica, because the file has one owner. It keeps nothing in memory that is not in the file: when
it is killed, Serve starts another, and gateways repeat what was not answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from deployments.platform.serve import node_address
from deployments.platform.telemetry import call_tracer
from deployments.responses.store.base import ResponseStore
from deployments.responses.store.registry import open_store
from deployments.wire.direct_calls import DirectCalls
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
from serve_app.wire.private_address import PrivateAddress

SWEEP_PERIOD_S = 30.0
REOPEN_PERIOD_S = 5.0

logger = logging.getLogger("ray.serve")


class Responses:
    """It has many methods because Serve calls one class and gateways have that many calls; the store does
    the work.

    If the file cannot be opened, the application keeps running: responses are then answered and not stored.
    """

    async def __init__(self, settings: ResponsesSettings, *, ports: range = ANY_PORT) -> None:  # type: ignore[misc]  # Serve awaits it
        self._settings = settings
        self._ports = ports
        self._opened: ResponseStore | None = None
        self._error = ""
        self._direct: DirectCalls | None = None
        await self._open()
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def address(self) -> PrivateAddress:
        """The address to which gateways send their calls."""
        if self._direct is None:
            methods = {name: getattr(self, name) for name in RESPONSES}
            self._direct = DirectCalls(
                RESPONSES, methods, node_address(), call_tracer("responses"), ports=self._ports
            )
        return self._direct.address

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

    @property
    def store(self) -> ResponseStore:
        """Raises: StoreError: the file could not be opened."""
        if self._opened is None:
            raise StoreError(self._error)
        return self._opened

    async def _open(self) -> None:
        """A failure is logged once for each reason."""
        try:
            self._opened = await asyncio.to_thread(open_store, self._settings, time.time())
        except StoreError as error:
            if str(error) != self._error:
                logger.error("responses are not stored: %s", error)
            self._error = str(error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(REOPEN_PERIOD_S if self._opened is None else SWEEP_PERIOD_S)
            if self._opened is None:
                await self._open()
                continue
            try:
                await self._opened.sweep(time.time())
            except StoreError as error:
                logger.warning("expired responses were not removed: %s", error)

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Serve calls this through ``__del__``."""
        self._sweeping.cancel()
        if self._direct is not None:
            await self._direct.stop()
            self._direct = None
        if self._opened is not None:
            store, self._opened = self._opened, None
            self._error = "closed"
            await store.close()
