"""Two tiers at once: the first that has an answer wins."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from deployments.gateway.generation.asked import Asked
from deployments.gateway.generation.engine_tier import EngineTier
from deployments.gateway.generation.tiers import Found, Tier, found_at_engine
from deployments.gateway.request.answer import Answer
from serve_app.traffic import Traffic


class Race:
    """Asks ``tier`` and an engine at the same time if the engine has room. Without room it passes: then the
    look-up comes first, and an engine is asked only if that finds nothing."""

    def __init__(self, tier: Tier, engine: EngineTier, traffic: Traffic) -> None:
        self._tier = tier
        self._engine = engine
        self._traffic = traffic

    async def find(self, asked: Asked) -> Found | None:
        if asked.key is None or not asked.controls.read or not self._engine.has_room(asked):
            return None
        self._traffic.raced += 1
        answer = self._engine.start(asked, races=True)
        try:
            found = await _before_first_bytes(answer, self._tier.find(asked))
        except BaseException:
            answer.close()
            raise
        if found is None:
            return found_at_engine(asked, answer, asked.cache_status)
        self._traffic.race_hits += 1
        answer.close()
        return found


async def _before_first_bytes(answer: Answer, finding: Coroutine[Any, Any, Found | None]) -> Found | None:
    """What is found before ``answer`` begins; or at all, where ``answer`` fails to begin."""
    found = asyncio.get_running_loop().create_task(finding)
    begun = asyncio.ensure_future(answer.begin())
    given: Found | None = None
    try:
        await asyncio.wait({found, begun}, return_when=asyncio.FIRST_COMPLETED)
        given = None if begun.done() and begun.exception() is None else await found
        return given
    finally:
        found.cancel()
        begun.cancel()
        await asyncio.gather(found, begun, return_exceptions=True)
        _close_unless(given, found)


def _close_unless(given: Found | None, found: asyncio.Task[Found | None]) -> None:
    """What is found too late may be a stream of another gateway."""
    if not found.cancelled() and found.exception() is None:
        late = found.result()
        if late is not None and late is not given:
            late.answer.close()
