"""``/admin/cache`` and ``/admin/cache/feedback``: look at the cache, purge it, report wrong hits. Both need
an admin key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import msgspec

from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.bodies import ADMINISTRATORS, Bodies
from deployments.gateway.request.exchange import Exchange, Handler
from deployments.platform.serve import call_errors
from serve_app.cache.entry import CacheEntry, Selection
from serve_app.errors import BadRequest, CacheUnavailable, NotFound
from serve_app.json_errors import no_json

SELECTORS = ("id", "tag", "model", "tenant")
LISTED_ENTRIES = 100


class AdminCache:
    """Answers hold prompt texts only where an entry is looked up on purpose."""

    def __init__(self, bodies: Bodies, cache: CacheClient | None) -> None:
        self._bodies = bodies
        self._cache = cache

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {
            "admin_cache": self.cache,
            "admin_feedback": self.feedback,
        }

    async def cache(self, exchange: Exchange) -> None:
        """``GET``: statistics, or the entries that fit the query. ``DELETE``: remove what fits."""
        cache = cache_for(self._cache)
        selection = _selection(exchange)
        with failures_named():
            answer = await _administer(cache, exchange.method, selection)
        await exchange.respond_json(answer)

    async def feedback(self, exchange: Exchange) -> None:
        """``POST {"entry": id, "right": bool}``: a person's verdict on a semantic hit. An entry with a wrong
        answer is dropped everywhere before this is answered; with ``"text"`` (the question that it answered)
        it stays, and is never given to that text again."""
        cache = cache_for(self._cache)
        report = _report(await self._bodies.read(exchange, ADMINISTRATORS))
        exchange.audit_target = f"entry={report.entry} right={report.right}"
        with failures_named():
            dropped = await cache.store.feedback(report.entry, report.right, report.text)
        await exchange.respond_json({"entry": str(report.entry), "right": report.right, "dropped": dropped})


def cache_for(cache: CacheClient | None) -> CacheClient:
    """Raises: NotFound: there is no cache."""
    if cache is None:
        raise NotFound("No cache is configured.", code="no_cache")
    return cache


@contextmanager
def failures_named() -> Iterator[None]:
    """Raises:
    CacheUnavailable: a call to the cache or the embedder failed.
    """
    try:
        yield
    except call_errors() as error:
        raise CacheUnavailable(f"The cache did not answer: {type(error).__name__}.") from error


class _Report(msgspec.Struct, forbid_unknown_fields=True):
    entry: UUID
    right: bool
    text: str | None = None


def _report(body: bytes) -> _Report:
    """Raises:
    BadRequest: the body is no report; the message names the wrong field.
    """
    try:
        return msgspec.json.decode(body, type=_Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = '{"entry": "<x-cache-entry>", "right": true|false}, and "text" if only that is meant'
        raise BadRequest(f"Expected {expected}: {no_json(error, body)}.") from error


async def _administer(cache: CacheClient, method: str, selection: Selection | None) -> dict[str, Any]:
    if method == "DELETE":
        if selection is None:
            wanted = ", ".join(SELECTORS)
            raise BadRequest(f"Name what to delete: the query needs one or more of {wanted}.", param="id")
        return {"deleted": await cache.store.delete(selection)}
    if selection is not None:
        entries = await cache.store.select(selection, LISTED_ENTRIES)
        return {"entries": [_entry(entry) for entry in entries], "limit": LISTED_ENTRIES}
    stats = await cache.store.stats()
    return {
        **asdict(stats),
        **asdict(cache.counters),
        "state": cache.health.state.value,
        "trouble": cache.health.trouble,
        "breaker_open": cache.breaker_is_open,
        "queued_writes": len(cache.writes),
    }


def _selection(exchange: Exchange) -> Selection | None:
    """What the query selects; ``None`` for an empty query.

    Raises:
        BadRequest: an unknown parameter, or an invalid id.
    """
    pairs = parse_qs(exchange.query.decode("latin-1"), keep_blank_values=True)
    query = {name: values[-1] for name, values in pairs.items()}
    unknown = sorted(query.keys() - set(SELECTORS))
    if unknown:
        known = ", ".join(SELECTORS)
        raise BadRequest(f"Unknown query parameter {unknown[0]!r}; known: {known}.", param=unknown[0])
    blank = next((name for name, value in query.items() if not value.strip()), None)
    if blank is not None:
        raise BadRequest(f"`{blank}` is empty: an empty selector would select too much.", param=blank)
    if not query:
        return None
    try:
        entry_id = UUID(query["id"]) if "id" in query else None
    except ValueError as error:
        raise BadRequest(f"`id` is {query['id'][:40]!r}; expected an entry's UUID.", param="id") from error
    return Selection(entry_id, query.get("tenant"), query.get("model"), query.get("tag"))


def _entry(entry: CacheEntry) -> dict[str, Any]:
    return {
        "id": str(entry.entry_id),
        "tenant": entry.tenant,
        "model": entry.model,
        "text": entry.text,
        "answer": entry.answer.text,
        "tags": entry.tags,
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
    }
