"""Feedback in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from deployments.feedback.store import rows
from deployments.feedback.store.captures import bytes_used, capture, page
from deployments.feedback.store.schema import FILE, open_file
from deployments.feedback.store.seal import Seal
from deployments.platform.store_threads import StoreThreads, refuse_on_full_disk
from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery, CaptureReply
from serve_app.feedback.values import (
    FeedbackError,
    FeedbackPage,
    FeedbackQuery,
    Judged,
    Kept,
    Said,
)
from serve_app.settings import FeedbackSettings

T = TypeVar("T")

DAY_S = 86_400.0

NEARLY = 0.95
"""Whether there is room again is asked with no capture: it does not begin again for the last bytes."""


class SqliteFeedback:
    """A :class:`~deployments.feedback.store.base.FeedbackStore`. It has many methods because the contract has
    them."""

    def __init__(self, folder: Path, settings: FeedbackSettings, seal: Seal | None = None) -> None:
        """Blocks while the file is opened. Raises: FeedbackError."""
        self._path = folder / FILE
        self._settings = settings
        self._seal = seal
        self._writing, self._reading = open_file(folder)
        self._used: int | None = None
        self._threads = StoreThreads("feedback")

    async def report(self, requests: Sequence[Judged]) -> None:
        await self._write(lambda db: rows.report(db, requests))

    async def say(self, tenant: str, request_id: str, author: str, said: Said, now: float) -> Kept:
        return await self._write(lambda db: rows.say(db, self._seal, (tenant, request_id, author, said), now))

    async def page(self, query: FeedbackQuery) -> FeedbackPage:
        return await self._run(self._threads.read(lambda: rows.page(self._reading, self._seal, query)))

    async def capture(self, captures: Sequence[Capture]) -> CaptureReply:
        """Raises: FeedbackError: they are not to be captured."""
        seal, most = self._captured()
        return await self._write(lambda db: self._capture(db, seal, captures, most))

    def _capture(
        self, db: sqlite3.Connection, seal: Seal, captures: Sequence[Capture], most: int
    ) -> CaptureReply:
        """In the writing thread, which alone counts what is used."""
        used = bytes_used(db) if self._used is None else self._used
        size = capture(db, seal, captures, most - used) if captures else 0
        self._used = used + (size or 0)
        return CaptureReply(full=size is None or (not captures and used >= most * NEARLY))

    async def captures(self, query: CaptureQuery) -> CapturePage:
        """Also of a time when the settings still asked for them."""
        seal = self._seal
        if seal is None:
            return CapturePage(())
        return await self._run(self._threads.read(lambda: page(self._reading, seal, query)))

    async def erase(self, tenant: str, only_captures: bool) -> int:
        """Also where the disk is full."""

        def work(db: sqlite3.Connection) -> int:
            self._used = None
            return rows.erase(db, tenant, only_captures=only_captures)

        gone = await self._run(self._threads.write(lambda: self._transaction(work)))
        await self._run(self._threads.write(self._truncate))
        return gone

    async def sweep(self, now: float) -> None:
        kept = self._settings
        ttl_s = kept.request_ttl_s if kept.capture is None else kept.capture.ttl_s
        old = {
            "said_before": now - kept.keep_days * DAY_S,
            "asked_before": now - kept.request_ttl_s,
            "captured_before": now - ttl_s,
        }
        most = {"most_requests": kept.max_requests, "most_said": kept.max_per_tenant}
        for work in (lambda db: rows.sweep(db, **old), lambda db: rows.make_room(db, **most)):
            while await self._run(self._threads.write(partial(self._transaction, work))):
                pass
        await self._run(self._threads.write(self._recount))

    def _recount(self) -> None:
        """Makes the next capture count again: rows are gone, another process may have written meanwhile, or
        what was counted was not stored."""
        self._used = None

    async def close(self) -> None:
        await self._threads.close(self._reading.close, self._writing.close)

    def _captured(self) -> tuple[Seal, int]:
        """Raises: FeedbackError."""
        if self._seal is None or self._settings.capture is None:
            raise FeedbackError("feedback: nothing is to be captured (feedback.capture)")
        return self._seal, self._settings.capture.max_bytes

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """In a transaction of its own. Raises: FeedbackError: nothing was written."""

        def whole() -> T:
            least = self._settings.min_free_disk_bytes
            refuse_on_full_disk(self._path.parent, least, "feedback.min_free_disk_bytes")
            return self._transaction(work)

        return await self._run(self._threads.write(whole))

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._writing:  # commits, or rolls back
                self._writing.execute("BEGIN IMMEDIATE")
                return work(self._writing)
        except BaseException:
            self._recount()
            raise

    def _truncate(self) -> None:
        """What was erased is not left in the log of writes either."""
        self._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _run(self, done: Awaitable[T]) -> T:
        try:
            return await done
        except (sqlite3.Error, OSError, RuntimeError) as error:
            raise FeedbackError(f"feedback {self._path}: {error}") from error
