"""``/admin/*``: look at the cache, the fleet and the latencies; purge. Needs an admin key."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import msgspec

from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.placement.engine_status import EngineStatus
from deployments.gateway.request.bodies import ADMINISTRATORS
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.services import Services
from deployments.platform.serve import CALL_ERRORS
from serve_app.cache.entry import CacheEntry, Selection
from serve_app.errors import BadRequest, CacheUnavailable, NotFound
from serve_app.fleet import Member, PrefillCounts
from serve_app.speculation import SpeculationReport

SELECTORS = ("id", "tag", "model", "tenant")
LISTED_ENTRIES = 100


class Admin:
    """Answers hold no secrets; prompt texts only where an entry is looked up on purpose."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def fleet(self, exchange: Exchange) -> None:
        self._services.identify_admin(exchange)
        fleet, now = self._services.fleet, time.monotonic()
        await exchange.respond_json(
            {model: [_member(member, now) for member in fleet.members(model)] for model in fleet.models}
        )

    async def engines(self, exchange: Exchange) -> None:
        """Of each model with replicas of its own: how Serve sees them, and how long each took to start."""
        self._services.identify_admin(exchange)
        statuses, fleet = await self._services.engines.read(), self._services.fleet
        managed = [model.id for model in self._services.settings.models if model.engine is not None]
        await exchange.respond_json(
            {model: _engines(statuses.get(model), fleet.members(model)) for model in managed}
        )

    async def latency(self, exchange: Exchange) -> None:
        """Milliseconds of each step, over the newest requests of this gateway."""
        self._services.identify_admin(exchange)
        await exchange.respond_json(
            {name: asdict(window) for name, window in self._services.latency.summary().items()}
        )

    async def traffic(self, exchange: Exchange) -> None:
        """What became of the requests of this gateway, since it started."""
        self._services.identify_admin(exchange)
        await exchange.respond_json(asdict(self._services.traffic))

    async def cache(self, exchange: Exchange) -> None:
        """``GET``: statistics, or the entries that fit the query. ``DELETE``: remove what fits."""
        cache = cache_for(self._services, exchange)
        selection = _selection(exchange)
        with failures_named():
            answer = await _administer(cache, exchange.method, selection)
        await exchange.respond_json(answer)

    async def feedback(self, exchange: Exchange) -> None:
        """``POST {"entry": id, "right": bool}``: what a person says of a semantic hit. An entry that answered
        wrongly is dropped everywhere before this is answered; with ``"text"`` (the question that it answered)
        it stays, and is never given to that text again."""
        cache = cache_for(self._services, exchange)
        report = _report(await self._services.bodies.read(exchange, ADMINISTRATORS))
        with failures_named():
            dropped = await cache.store.feedback(report.entry, report.right, report.text)
        await exchange.respond_json({"entry": str(report.entry), "right": report.right, "dropped": dropped})


def cache_for(services: Services, exchange: Exchange) -> CacheClient:
    """The cache, for an administrator.

    Raises:
        Unauthorized, Forbidden: whoever asks is none.
        NotFound: there is no cache.
    """
    services.identify_admin(exchange)
    if services.cache is None:
        raise NotFound("No cache is configured.", code="no_cache")
    return services.cache


@contextmanager
def failures_named() -> Iterator[None]:
    """Raises:
    CacheUnavailable: a call to the cache or the embedder failed.
    """
    try:
        yield
    except CALL_ERRORS as error:
        raise CacheUnavailable(f"The cache did not answer: {type(error).__name__}.") from error


class _Report(msgspec.Struct, forbid_unknown_fields=True):
    entry: UUID
    right: bool
    text: str | None = None


def _report(body: bytes) -> _Report:
    """Raises:
    BadRequest: the body is no report; the message says what is wrong and where.
    """
    try:
        return msgspec.json.decode(body, type=_Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = '{"entry": "<x-cache-entry>", "right": true|false}, and "text" if only that is meant'
        raise BadRequest(f"Expected {expected}: {error}.") from error


async def _administer(cache: CacheClient, method: str, selection: Selection | None) -> dict[str, Any]:
    if method == "DELETE":
        if selection is None:
            wanted = ", ".join(SELECTORS)
            raise BadRequest(f"Say what to delete: one or more of {wanted} in the query.", param="id")
        return {"deleted": await cache.store.delete(selection)}
    if selection is not None:
        entries = await cache.store.select(selection, LISTED_ENTRIES)
        return {"entries": [_entry(entry) for entry in entries], "limit": LISTED_ENTRIES}
    stats = await cache.store.stats()
    return {
        **asdict(stats),
        **asdict(cache.counters),
        "breaker_open": cache.breaker_is_open,
        "queued_writes": len(cache.writes),
    }


def _selection(exchange: Exchange) -> Selection | None:
    """What the query selects; ``None`` for an empty query.

    Raises:
        BadRequest: an unknown parameter, or an id that is none.
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


def _engines(status: EngineStatus | None, members: Sequence[Member]) -> dict[str, Any]:
    return {
        "status": None if status is None else status.status,
        "message": None if status is None else status.message,
        "replicas": [
            {
                "replica": member.name,
                "state": member.report.state.value,
                "start_s": {phase: round(seconds, 2) for phase, seconds in member.report.start_s.items()},
            }
            for member in members
            if not member.report.is_static
        ],
    }


def _member(member: Member, now: float) -> dict[str, Any]:
    report = member.report
    return {
        "replica": member.name,
        "url": report.url,
        "state": report.state.value,
        "can_serve": member.can_serve(now),
        "running": report.running,
        "waiting": report.waiting,
        "kv_cache_usage": round(report.kv_cache_usage, 4),
        "capacity": report.capacity,
        "limit": member.limit,
        "priority": report.priority,
        "in_flight": member.in_flight,
        "service_s": round(member.pace.service_s, 4) if member.pace.ends else None,
        "reported_ago_s": round(now - member.reported_at, 3),
        "speculation": _part(report.speculation),
        "prefills": _part(report.prefills),
    }


def _part(report: SpeculationReport | PrefillCounts | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(report).items()
    }
