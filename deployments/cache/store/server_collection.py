"""One collection of a Qdrant server: its preparation, its calls, and their errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from qdrant_client import AsyncQdrantClient, models

from deployments.cache.store.base import StoreError
from deployments.cache.store.payload import FIELDS
from deployments.cache.store.server_client import is_missing, reason_of
from deployments.cache.store.server_layout import Layout, index_of
from serve_app.settings.qdrant import QdrantSettings

T = TypeVar("T")

MAX_REASON = 200
"""The most characters of a reason in a message, because servers' errors may be long."""


class Collection:
    """Runs calls on the collection of one embedder, each within ``timeout_s``. A collection that is found to
    be missing is created again by the next call."""

    def __init__(
        self, client: AsyncQdrantClient, settings: QdrantSettings, dimension: int, embedder: str, key: str
    ) -> None:
        self._client = client
        self._settings = settings
        self._layout = Layout(settings, dimension, embedder)
        self._key = key
        self._is_open = True
        self._is_prepared = False
        self._preparing = asyncio.Lock()

    @property
    def location(self) -> str:
        return f"{self._settings.url}/collections/{self._layout.name}"

    async def call(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        """Call a method of the client on this collection.

        Raises:
            StoreError: the call failed or took too long, or the collection is closed or not ours.
        """
        if not self._is_open:
            raise self._error("closed")
        if not self._is_prepared:
            await self._prepare_again()
        return await self._ask(method, **arguments)

    async def change(self, method: Callable[..., Awaitable[models.UpdateResult]], **arguments: Any) -> None:
        """Call a method that changes points, and wait until later calls see the change.

        Raises:
            StoreError: as in ``call``, or the change is not completed.
        """
        result = await self.call(method, wait=True, **arguments)
        if result.status != models.UpdateStatus.COMPLETED:
            raise self._error(f"the change is only {result.status}")

    async def prepare(self) -> None:
        """Create the collection and its indexes if they are missing.

        Raises:
            StoreError: a call failed, or the collection is not ours.
        """
        async with self._preparing:
            if self._is_prepared:
                return
            if not await self._ask(self._client.collection_exists):
                await self._create()
            info = await self._ask(self._client.get_collection)
            objection = self._layout.objection(info)
            if objection is not None:
                raise self._error(objection)
            for field in FIELDS:
                if field not in info.payload_schema:
                    await self._ask(
                        self._client.create_payload_index,
                        field_name=field,
                        field_schema=index_of(field),
                        wait=True,
                    )
            self._is_prepared = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._client.close()

    async def _prepare_again(self) -> None:
        """Prepare within one overall time-out: concurrent calls wait for each other here."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await self.prepare()
        except TimeoutError:
            raise self._error(f"not prepared within {self._settings.timeout_s:g} s") from None

    async def _create(self) -> None:
        try:
            await self._ask(self._client.create_collection, **self._layout.creation())
        except StoreError:
            # Another application may have created it in the meantime.
            if not await self._ask(self._client.collection_exists):
                raise

    async def _ask(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        """Make one call. Every client error becomes a :class:`StoreError` without its cause: the cause may
        hold entries' texts, which must not be logged."""
        limit = asyncio.timeout(self._settings.timeout_s)
        try:
            async with limit:
                return await method(collection_name=self._layout.name, **arguments)
        except Exception as error:
            # gRPC may report the time-out's cancellation as an error of its own: CANCELLED.
            if isinstance(error, TimeoutError) or limit.expired():
                raise self._error(f"no answer within {self._settings.timeout_s:g} s") from None
            if is_missing(error):
                self._is_prepared = False
            raise self._error(reason_of(error)) from None

    def _error(self, reason: str) -> StoreError:
        shown = reason.replace(self._key, "***") if self._key else reason
        return StoreError(f"cache store {self.location}: {' '.join(shown.split())[:MAX_REASON]}")
