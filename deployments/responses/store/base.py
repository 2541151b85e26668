"""The contract of a store of responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
    StoreStats,
)


class ResponseStore(Protocol):
    """Every call names the tenant, and finds nothing of another. ``now`` is in Unix seconds, of one clock. It
    has this many methods because the Responses API needs as many operations.

    A write is durable when its call returns, also if the process is killed then; it may be repeated without
    another effect. A call that begins after a write returned sees it. Every method may raise StoreError.
    """

    async def put(self, record: Record, items: Sequence[NewItem], now: float) -> Outcome:
        """Store a response; it replaces an earlier state of it. ``items`` are added to its conversation."""
        ...

    async def get(self, tenant: str, response_id: str, now: float) -> Found:
        """A response whose owner is gone is found as failed. Its items are left out."""
        ...

    async def history(self, tenant: str, response_id: str, bounds: ChainBounds, now: float) -> History:
        """The items of a response and of all before it."""
        ...

    async def status(self, tenant: str, response_id: str, now: float) -> str | None:
        """The status as ``get`` finds it; ``None`` without a response."""
        ...

    async def own_items(self, tenant: str, response_id: str, with_input: bool, now: float) -> History:
        """The items of one response alone: its output, and its input where that is wanted."""
        ...

    async def delete(self, tenant: str, response_id: str, now: float) -> Absence | None:
        """``None`` when it was there, and is no longer."""
        ...

    async def cancel(self, tenant: str, response_id: str, now: float) -> Found:
        """End a response that is not finished; one that is stays as it is."""
        ...

    async def beat(self, owner: str, running: Sequence[str], now: float) -> list[str]:
        """A gateway lives and generates these. Returns those that it should stop."""
        ...

    async def create_conversation(
        self, tenant: str, conversation: Conversation, items: Sequence[NewItem], now: float
    ) -> Outcome: ...

    async def conversation(self, tenant: str, conversation_id: str, now: float) -> FoundConversation: ...

    async def set_metadata(
        self, tenant: str, conversation_id: str, metadata: bytes, now: float
    ) -> FoundConversation: ...

    async def delete_conversation(self, tenant: str, conversation_id: str, now: float) -> Absence | None:
        """Its responses stay until they expire."""
        ...

    async def conversation_items(
        self, tenant: str, conversation_id: str, bounds: ChainBounds, now: float
    ) -> History:
        """All items, the oldest first, each a part of its own."""
        ...

    async def listed_items(self, tenant: str, conversation_id: str, part: Part, now: float) -> Listed:
        """Some of the items, however many there are."""
        ...

    async def conversation_item(self, tenant: str, conversation_id: str, item_id: str, now: float) -> Listed:
        """One item, or none."""
        ...

    async def add_items(
        self, tenant: str, conversation_id: str, items: Sequence[NewItem], now: float
    ) -> Added: ...

    async def delete_item(
        self, tenant: str, conversation_id: str, item_id: str, now: float
    ) -> Absence | None: ...

    async def sweep(self, now: float) -> None:
        """Remove what has expired."""
        ...

    async def stats(self) -> StoreStats: ...

    async def close(self) -> None: ...
