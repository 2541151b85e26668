"""``/admin/suggestions``: what captured requests, feedback and the cache's counters say to change."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from deployments.gateway.feedback.feedback import GatewayFeedback
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.exchange import Exchange
from serve_app.errors import NotFound
from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery
from serve_app.feedback.shown import shown, shown_capture
from serve_app.feedback.values import FeedbackPage, FeedbackQuery
from serve_app.suggestions.contract import Observed
from serve_app.suggestions.registry import suggestions_of

NEWEST = 500
"""Captured requests, and as much feedback, that are looked at."""


class AdminSuggestions:
    """No suggestion quotes a text. ``feedback`` is ``None`` where nothing is kept."""

    def __init__(self, feedback: GatewayFeedback | None, cache: CacheClient | None) -> None:
        self._feedback = feedback
        self._cache = cache

    async def __call__(self, exchange: Exchange) -> None:
        """Raises: FeedbackUnavailable."""
        if self._feedback is None:
            raise NotFound("Nothing is captured here: the settings have no `feedback`.", code="no_feedback")
        client = self._feedback.client
        captured: CapturePage = await client.call("captures", CaptureQuery(limit=NEWEST, newest=True))
        said: FeedbackPage = await client.call("page", FeedbackQuery(limit=NEWEST))
        counters = {} if self._cache is None else asdict(self._cache.counters)
        found = await asyncio.to_thread(suggestions, captured.captures, said, counters)
        await exchange.respond_json(
            {"suggestions": found, "captures": len(captured.captures), "feedback": len(said.feedback)}
        )


def suggestions(
    captures: tuple[Capture, ...], said: FeedbackPage, counters: dict[str, int]
) -> list[dict[str, Any]]:
    """Runs in a thread: it reads megabytes of texts."""
    observed = Observed(
        captures=[shown_capture(each, with_content=True) for each in captures],
        feedback=[shown(each) for each in said.feedback],
        cache=counters,
    )
    return [asdict(each) for each in suggestions_of(observed)]
