"""A bounded ring of finished requests. It holds no text of a prompt or an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from heapq import nlargest

import msgspec

from serve_app.recent.query import Query, ended_ns
from serve_app.request.record import RequestRecord, shortened

MOST_STEPS = 64
"""With the bound of its texts it bounds the memory of one request."""


class Found(msgspec.Struct, frozen=True):
    """A page of the newest requests, newest first. ``kept``: how many there are to look through, ``seen``:
    how many there were since the start; ``more``: an older one fits the query too."""

    requests: tuple[RequestRecord, ...]
    kept: int
    seen: int
    more: bool


class Recent:
    """``size``: how many are kept; about 2 KB each. ``routes``: those that are kept at all: the console's own
    polling must not push out what it shows."""

    def __init__(self, size: int, routes: Collection[str]) -> None:
        self._kept: deque[RequestRecord] = deque(maxlen=size)
        self._routes = frozenset(routes)
        self._seen = 0

    def take(self, record: RequestRecord) -> None:
        """A sink of finished requests: microseconds."""
        if record.method != "POST" or record.route not in self._routes or record.tenant is None:
            return  # what a client without a key asks must not push out the others' requests
        self._seen += 1
        self._kept.append(_bounded(record))

    def find(self, query: Query) -> Found:
        """Looks through what is kept at most once."""
        found: list[RequestRecord] = []
        for record in reversed(self._kept):
            if query.fits(record):
                if len(found) == query.limit:
                    return self._page(found, more=True)
                found.append(record)
        return self._page(found, more=False)

    def _page(self, found: list[RequestRecord], *, more: bool) -> Found:
        return Found(tuple(found), len(self._kept), self._seen, more)


def merged(pages: Sequence[Found], limit: int) -> Found:
    """One page of what several gateways found."""
    every = [record for page in pages for record in page.requests]
    newest = nlargest(limit, every, key=ended_ns)
    return Found(
        tuple(newest),
        sum(page.kept for page in pages),
        sum(page.seen for page in pages),
        len(every) > limit or any(page.more for page in pages),
    )


def _bounded(record: RequestRecord) -> RequestRecord:
    record = shortened(record)
    if len(record.steps) > MOST_STEPS:
        record = msgspec.structs.replace(record, steps=record.steps[:MOST_STEPS])
    return record
