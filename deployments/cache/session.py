"""The open store of a cache, from the first attempt to open it until it is closed."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from deployments.cache.learning import CacheLearning
from deployments.cache.note import CacheNote
from deployments.cache.store import CacheStore, StoreError, open_store
from serve_app.cache.entry import CacheEntry
from serve_app.cache.normal import vectors_of
from serve_app.cache.purges import PurgeLog
from serve_app.cache.shards import Place
from serve_app.embedding import EmbedderInfo
from serve_app.settings import CacheSettings

logger = logging.getLogger("ray.serve")

SAME_MOMENT_S = 1e-3
"""Two creation times closer than this are equal: the store may return a number with a different last bit."""


class StoreSession:
    """Opens the store, restores what it keeps beside the entries (what was learned, the epoch), and closes
    it. Hold ``writing`` during every write to the entries: writes and purges run one at a time."""

    def __init__(
        self,
        settings: CacheSettings,
        embedder: EmbedderInfo,
        learning: CacheLearning,
        purges: PurgeLog,
        place: Place,
    ) -> None:
        self.writing = asyncio.Lock()
        self._settings = settings
        self._embedder = embedder
        self._learning = learning
        self._purges = purges
        self._place = place
        self._opened: tuple[CacheStore, CacheNote] | None = None
        self._error = ""

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def store(self) -> CacheStore:
        """The open store.

        Raises:
            StoreError: it could not be opened; the message says why.
        """
        if self._opened is None:
            raise StoreError(self._error)
        return self._opened[0]

    async def open(self) -> None:
        """Try to open the store. A failure is logged, once for each reason, and raised by ``store``."""
        try:
            vectors = vectors_of(self._embedder)
            store = await open_store(self._settings, self._embedder.dimension, vectors, self._place)
            self._opened = store, await self._load(store)
        except (StoreError, OSError) as error:
            if str(error) != self._error:
                logger.error("serving without the cache: %s", error)
            self._error = str(error)

    async def entry_made_at(self, entry_id: UUID, made_at: float) -> CacheEntry | None:
        """The entry, if it still holds the answer made at ``made_at`` (Unix seconds); another answer may have
        replaced it.

        Raises:
            StoreError: the store failed.
        """
        entry = await self.store.get(entry_id)
        return entry if entry is not None and abs(entry.created_at - made_at) < SAME_MOMENT_S else None

    async def save_learning(self) -> None:
        """Save what was learned, if it has changed.

        Raises:
            StoreError: the store failed or is not open.
        """
        if self._opened is None:
            raise StoreError(self._error)
        await self._learning.save(self._opened[1])

    async def close(self) -> None:
        """Save what was learned and release the store. A second call does nothing."""
        if self._opened is None:
            return
        (store, note), self._opened = self._opened, None
        try:
            await self._learning.save(note)
        except StoreError as error:
            logger.warning("what the cache learned last is lost: %s", error)
        await store.close()

    async def _load(self, store: CacheStore) -> CacheNote:
        try:
            note = await CacheNote.read(store)
            await self._learning.load(note)
            self._purges.continue_from(await note.begin(self._purges.epoch))
        except BaseException:
            await store.close()
            raise
        return note
