"""The times between the pieces of one stream, as they are passed on: what its client waits for each token."""

from __future__ import annotations

from itertools import pairwise
from math import log

import msgspec

from serve_app.buckets import PER_LOG

MOST_STAMPS = 1024
"""That wait; then they are counted, so that a stream of any length takes little memory."""


class Gaps(msgspec.Struct):
    """``stamps``: when pieces were passed on, in nanoseconds of a clock that never goes back. ``buckets``:
    how many gaps were in each bucket (``serve_app.buckets``); ``total_us``: all of them together."""

    stamps: list[int] = []
    buckets: dict[int, int] = {}
    total_us: int = 0

    def count(self) -> None:
        """Count the gaps between the stamps; the last stamp stays, for the next gap."""
        stamps, buckets = self.stamps, self.buckets
        for before, now in pairwise(stamps):
            gap = (now - before) // 1000 or 1
            bucket = int(log(gap) * PER_LOG)
            buckets[bucket] = buckets.get(bucket, 0) + 1
            self.total_us += gap
        del stamps[:-1]
