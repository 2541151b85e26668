"""Purges, and the epoch that counts them."""

from __future__ import annotations

from collections import deque

from serve_app.cache.entry import CacheEntry, Selection

REMEMBERED_PURGES = 1024
"""Purges kept in memory: far more than can happen while an answer waits in a gateway's write queue."""


class PurgeLog:
    """The last purges and the epoch. A gateway that sees a new epoch drops what it holds in memory."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._purges: deque[tuple[Selection, float]] = deque(maxlen=REMEMBERED_PURGES)

    @property
    def epoch(self) -> int:
        return self._epoch

    def continue_from(self, epoch: int) -> None:
        """Raise the epoch to ``epoch``, which exceeds every epoch of earlier processes."""
        self._epoch = max(self._epoch, epoch)

    def record(self, selection: Selection, now: float) -> None:
        """Record a purge at ``now`` (Unix seconds)."""
        self._purges.append((selection, now))
        self._epoch += 1

    def covers(self, entry: CacheEntry) -> bool:
        """Whether a later purge covers the entry. Such an entry was still in a gateway's write queue when the
        purge ran, or in a cancelled write from the cache to the store."""
        return any(entry.created_at <= when and what.fits(entry) for what, when in self._purges)
