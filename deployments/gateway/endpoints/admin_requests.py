"""``/admin/requests``: the newest requests of all gateways. It names tenants, so it needs an admin key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qs

from deployments.gateway.request.exchange import Exchange
from serve_app.errors import NotFound
from serve_app.recent import Found, Query, Recent, merged, parse_query
from serve_app.recent.query import ended_ns, outcome_of
from serve_app.request.record import RequestRecord

FindEverywhere = Callable[[Query], Awaitable[Sequence[Found]]]
"""Asks every gateway, this one too; empty if they do not answer."""


class AdminRequests:
    """``everywhere`` is ``None`` where there is one gateway; ``recent`` where no request is kept."""

    def __init__(self, recent: Recent | None, everywhere: FindEverywhere | None) -> None:
        self._recent = recent
        self._everywhere = everywhere

    async def __call__(self, exchange: Exchange) -> None:
        if self._recent is None:
            raise NotFound("No requests are kept (gateway.recent_requests is 0).", code="no_recent_requests")
        pairs = parse_qs(exchange.query.decode("latin-1"), keep_blank_values=True)
        query = parse_query({name: values[-1] for name, values in pairs.items()})
        pages = () if self._everywhere is None else await self._everywhere(query)
        found = merged(pages or [await found_in(self._recent, query)], query.limit)
        await exchange.respond_json(_shown(found))


async def found_in(recent: Recent, query: Query) -> Found:
    """The search in slices, between which the event loop passes tokens on."""
    for page in recent.search(query):
        if page is not None:
            return page
        await asyncio.sleep(0)
    raise AssertionError("the last slice gives the page")


def _shown(found: Found) -> dict[str, Any]:
    last = found.requests[-1] if found.more and found.requests else None
    return {
        "requests": [_request(record) for record in found.requests],
        "next": None if last is None else str(ended_ns(last)),
        "kept": found.kept,
        "seen": found.seen,
    }


def _request(record: RequestRecord) -> dict[str, Any]:
    tokens = record.tokens
    return {
        "id": record.request_id,
        "trace_id": record.trace_id,
        "at": round(record.start_unix_ns / 1e9, 3),
        "path": record.route,
        "model": record.model,
        "tenant": record.tenant,
        "session": record.session,
        "member": record.member,
        "outcome": outcome_of(record),
        "status": record.status,
        "error": record.error,
        "client_gone": record.client_gone,
        "finish_reason": record.finish_reason,
        "streamed": record.streamed,
        "experiment": record.experiment,
        "cache": record.cache,
        "cache_similarity": record.similarity,
        "cache_score": record.score,
        "cache_entry": record.entry,
        "ttft_ms": _rounded(record.ttft_ms),
        "itl_ms": _rounded(record.itl_ms),
        "total_ms": _rounded(record.total_ms),
        "upstream_ms": _rounded(record.upstream_ms),
        "overhead_ms": _rounded(record.overhead_ms),
        "input_tokens": tokens.prompt,
        "cached_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "accepted_drafts": tokens.accepted,
        "steps": [
            {
                "name": step.name,
                "start_ms": _rounded(step.offset_ms),
                "duration_ms": _rounded(step.duration_ms),
            }
            for step in record.steps
        ],
    }


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)
