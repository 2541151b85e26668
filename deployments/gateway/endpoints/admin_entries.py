"""``/admin/cache/entries``: the cache's entries out of it, and into it, as JSON lines. Needs an admin key."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import msgspec

from deployments.gateway.endpoints.admin_cache import cache_for, failures_named
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.bodies import ADMINISTRATORS, Bodies
from deployments.gateway.request.exchange import Exchange
from serve_app.cache.entry import CacheEntry
from serve_app.cache.keys import cache_key
from serve_app.errors import BadRequest, PromptlyError
from serve_app.json_errors import no_json
from serve_app.model_choice.names import ModelNames
from serve_app.model_choice.offers import Offers
from serve_app.openai.answers import Answer, Usage
from serve_app.openai.bounds import refuse_excess
from serve_app.openai.requests import Endpoint, parse_generation
from serve_app.request.auth import DEFAULT_TENANT
from serve_app.request.cache_controls import CacheControls
from serve_app.settings import CacheSettings, Settings

NDJSON = "application/x-ndjson"
PAGE = 500
BATCH = 32
"""Entries that are embedded and stored at a time."""

NOT_GENERATED = Usage(0, 0, 0)


class Exported(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="entry", tag_field="kind"):
    """An entry as it was; its vector is made again, as it may come from a cache with another embedder."""

    entry_id: UUID
    tenant: str
    model: str
    partition: str
    text: str
    answer: Answer
    created_at: float
    expires_at: float
    tags: tuple[str, ...] = ()


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="answer", tag_field="kind"):
    """A chat request and the answer to it, written by hand."""

    request: dict[str, Any]
    answer: str
    tenant: str = DEFAULT_TENANT
    tags: tuple[str, ...] = ()
    ttl_s: float | None = None


LINE = msgspec.json.Decoder(Exported | Given)


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that was not stored. ``line`` counts from 1."""

    line: int
    reason: str


class AdminEntries:
    """``GET`` exports a page of entries; ``POST`` stores the entries in its body."""

    def __init__(
        self,
        bodies: Bodies,
        cache: CacheClient | None,
        *,
        settings: Settings,
        names: ModelNames,
        offers: Offers,
    ) -> None:
        self._bodies = bodies
        self._cache = cache
        self._limits = settings.limits
        self._rules = settings.cache or CacheSettings()
        self._names = names
        self._offers = offers

    async def __call__(self, exchange: Exchange) -> None:
        cache = cache_for(self._cache)
        await (self._take_in(exchange, cache) if exchange.method == "POST" else self._export(exchange, cache))

    async def _export(self, exchange: Exchange, cache: CacheClient) -> None:
        """A page of JSON lines; ``x-next`` is the ``after`` of the next one, and missing on the last."""
        after = _after(exchange)
        with failures_named():
            entries, following = await cache.store.page(after, PAGE)
        lines = b"".join(msgspec.json.encode(_exported(entry)) + b"\n" for entry in entries)
        headers = {} if following is None else {"x-next": str(following)}
        await exchange.respond(200, lines, NDJSON, headers)

    async def _take_in(self, exchange: Exchange, cache: CacheClient) -> None:
        """Store every valid line; the answer names the others."""
        body = await self._bodies.read(exchange, ADMINISTRATORS)
        stored, waiting, refused = 0, [], []
        for number, line in enumerate(body.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                waiting.append(self._entry(cache, line))
            except PromptlyError as error:
                refused.append(Refused(number, str(error)))
            if len(waiting) == BATCH:
                stored += await _store(cache, waiting)
                waiting = []
        stored += await _store(cache, waiting)
        await exchange.respond_json({"stored": stored, "refused": refused})

    def _entry(self, cache: CacheClient, line: bytes) -> CacheEntry:
        """Raises:
        BadRequest: the line is no entry, or one that may not be stored.
        """
        try:
            found = LINE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"No entry: {no_json(error, line)}.") from error
        except RecursionError as error:
            raise BadRequest("It is nested too deeply.", code="nested_too_deeply") from error
        if isinstance(found, Given):
            return self._given(cache, found)
        now = time.time()
        if found.expires_at <= now:
            raise BadRequest("It has expired.")
        # Created now: else an earlier purge would apply to it, too.
        return CacheEntry(**msgspec.structs.asdict(found) | {"created_at": now})

    def _given(self, cache: CacheClient, given: Given) -> CacheEntry:
        if given.ttl_s is not None and not 0 < given.ttl_s < math.inf:
            raise BadRequest(f"`ttl_s` is {given.ttl_s}; expected seconds above 0.")
        request = self._names.under_own_name(
            parse_generation(Endpoint.CHAT, msgspec.json.encode(given.request))
        )
        refuse_excess(request.fields, self._limits)
        fingerprint = self._offers.fingerprint(request.model)
        by, sampled = self._rules.partition_by, self._rules.sampled
        key = cache_key(request, given.tenant, fingerprint, by, sampled=sampled)
        if key is None:
            raise BadRequest("Such a request bypasses the cache (see docs/cache.md).")
        controls = CacheControls(tags=given.tags)
        answer = Answer(request.model, given.answer, NOT_GENERATED)
        entry = cache.new_entries.make(key, controls, {}, answer, given.ttl_s)
        if entry is None:
            raise BadRequest(
                "It cannot be stored: a cache rule forbids it, or it is longer than `max_entry_bytes`."
            )
        return entry


async def _store(cache: CacheClient, entries: list[CacheEntry]) -> int:
    with failures_named():
        if entries:
            await cache.store.put(entries)
    return len(entries)


def _after(exchange: Exchange) -> UUID | None:
    """Raises:
    BadRequest: ``after`` is no id.
    """
    given = parse_qs(exchange.query.decode("latin-1")).get("after")
    if given is None:
        return None
    try:
        return UUID(given[-1])
    except ValueError as error:
        raise BadRequest(f"`after` is {given[-1][:40]!r}; expected `x-next`.", param="after") from error


def _exported(entry: CacheEntry) -> Exported:
    names: Iterable[str] = Exported.__struct_fields__
    return Exported(**{name: getattr(entry, name) for name in names})
