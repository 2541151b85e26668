"""A bounded ring of finished requests. It holds no text of a prompt or an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from heapq import nlargest

import msgspec

from serve_app.recent.query import Query, ended_ns
from serve_app.request.record import RequestRecord, shortened

SLICE = 2000
"""Requests that are looked at in one piece: about half a millisecond."""

MOST_STEPS = 64
"""Most steps that are kept: with the bound of its texts they bound the memory of one request."""


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
        self._by_id: dict[str, deque[RequestRecord]] = {}  # clients choose ids, and may repeat them

    def take(self, record: RequestRecord) -> None:
        """A sink of finished requests: microseconds."""
        if record.method != "POST" or record.route not in self._routes or record.tenant is None:
            return  # what a client without a key asks must not push out the others' requests
        self._seen += 1
        if len(self._kept) == self._kept.maxlen:
            self._forget_oldest()
        kept = _bounded(record)
        self._kept.append(kept)
        self._by_id.setdefault(kept.request_id, deque()).append(kept)

    def search(self, query: Query) -> Iterator[Found | None]:
        """Looks through what is kept now at most once; ``None`` after each slice, in the end the page. A look
        for an id takes one slice."""
        of_id = None if query.id is None else self._by_id.get(query.id, ())
        newest_first = list(self._kept if of_id is None else of_id)[::-1]
        found: list[RequestRecord] = []
        for start in range(0, len(newest_first), SLICE):
            fitting = [each for each in newest_first[start : start + SLICE] if query.fits(each)]
            found += fitting
            if len(found) > query.limit:
                yield self._page(found[: query.limit], more=True)
                return
            yield None
        yield self._page(found, more=False)

    def _forget_oldest(self) -> None:
        oldest = self._kept.popleft()
        same = self._by_id[oldest.request_id]
        same.popleft()
        if not same:
            del self._by_id[oldest.request_id]

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
