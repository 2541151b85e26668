"""How much is kept: counts per tenant, and which threads leave when there is no room."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop
from pathlib import Path

from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.values import Absence


@dataclass(slots=True)
class Volume:
    entries: int = 0
    bytes: int = 0

    def fits(self, entries: int | None, size: int | None) -> bool:
        return (entries is None or self.entries <= entries) and (size is None or self.bytes <= size)


@dataclass(slots=True)
class Room:
    """Counts what is stored. ``is_counted``: the counts are those of the file; else the next transaction
    counts first."""

    settings: ResponsesSettings
    folder: Path
    total: Volume = field(default_factory=Volume)
    tenants: dict[str, Volume] = field(default_factory=dict)
    is_counted: bool = False

    def count(self, db: sqlite3.Connection) -> None:
        self.total, self.tenants = Volume(), {}
        query = "SELECT tenant, sum(entries), sum(bytes) FROM threads GROUP BY tenant"
        for tenant, entries, size in db.execute(query):
            self._add(tenant, entries, size)
        self.is_counted = True

    def has_disk(self) -> bool:
        """The disk has the free space that is to be left."""
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize >= self.settings.min_free_disk_bytes

    def grow(self, db: sqlite3.Connection, thread: int, tenant: str, entries: int, size: int) -> None:
        db.execute(
            "UPDATE threads SET entries = entries + ?, bytes = bytes + ? WHERE id = ?",
            (entries, size, thread),
        )
        self._add(tenant, entries, size)

    def make_room(self, db: sqlite3.Connection, tenant: str, keep: int, now: float) -> bool:
        """Evict until all bounds hold; false if that is impossible. ``keep``: the thread that just grew."""
        of_tenant = self.settings.max_entries_per_tenant, self.settings.max_bytes_per_tenant
        while tenant in self.tenants and not self.tenants[tenant].fits(*of_tenant):
            if not self._evict(db, tenant, keep, now):
                return False
        while not self.total.fits(self.settings.max_entries, self.settings.max_bytes):
            # The bound on entries may be reached by many small ones, the bound on bytes by few large ones.
            by_bytes = self.total.bytes > self.settings.max_bytes
            if not any(self._evict(db, name, keep, now) for name in self._largest_first(by_bytes)):
                return False
        return True

    def _largest_first(self, by_bytes: bool) -> Iterator[str]:
        """Nearly always only the first is asked for."""
        largest = [(-(each.bytes if by_bytes else each.entries), name) for name, each in self.tenants.items()]
        heapify(largest)
        while largest:
            yield heappop(largest)[1]

    def _evict(self, db: sqlite3.Connection, tenant: str, keep: int, now: float) -> bool:
        found = db.execute(
            "SELECT id FROM threads WHERE tenant = ? AND id != ? ORDER BY used LIMIT 1", (tenant, keep)
        ).fetchone()
        if found is None:
            return False
        self.remove(db, found[0], tenant, Absence.EVICTED, now)
        return True

    def remove(self, db: sqlite3.Connection, thread: int, tenant: str, why: Absence, now: float) -> None:
        """A thread with all that is in it."""
        for table in ("responses", "conversations"):
            db.execute(
                f"INSERT OR REPLACE INTO gone SELECT id, tenant, ?, ? FROM {table} WHERE thread = ?",
                (str(why), now, thread),
            )
        db.execute(
            "DELETE FROM items WHERE conversation IN (SELECT id FROM conversations WHERE thread = ?)",
            (thread,),
        )
        for table in ("responses", "conversations"):
            db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
        entries, size = db.execute("SELECT entries, bytes FROM threads WHERE id = ?", (thread,)).fetchone()
        db.execute("DELETE FROM threads WHERE id = ?", (thread,))
        self._add(tenant, -entries, -size)

    def _add(self, tenant: str, entries: int, size: int) -> None:
        own = self.tenants.setdefault(tenant, Volume())
        for volume in (self.total, own):
            volume.entries += entries
            volume.bytes += size
        if own.entries <= 0:
            del self.tenants[tenant]
