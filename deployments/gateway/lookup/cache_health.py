"""Whether the cache can be used now, as one gateway sees it."""

from __future__ import annotations

import logging
from enum import Enum

logger = logging.getLogger("ray.serve")


class Part(Enum):
    """What the cache needs; the value is its name in messages."""

    STORE = "the store"
    EMBEDDER = "the embedder"


class CacheState(Enum):
    STARTING = "starting"
    OK = "ok"
    FAILING = "failing"


class CacheHealth:
    """The trouble of each part. Requests go on without the cache, so no response shows it; each change is
    logged once. Before both parts have answered, the cache is starting, and nothing is logged."""

    def __init__(self) -> None:
        self._troubles: dict[Part, str] = {}
        self._has_started = False

    @property
    def state(self) -> CacheState:
        if not self._has_started:
            return CacheState.STARTING
        return CacheState.FAILING if self._troubles else CacheState.OK

    @property
    def trouble(self) -> str | None:
        """What is wrong, for administrators; ``None`` while nothing is."""
        found = [f"{part.value} {self._troubles[part]}" for part in Part if part in self._troubles]
        return "; ".join(found) or None

    def started(self) -> None:
        """Both parts have answered once."""
        self._has_started = True
        if self._troubles:
            self._log()

    def well(self, part: Part) -> None:
        if self._troubles.pop(part, None) is not None and self._has_started and not self._troubles:
            logger.warning("the cache works again")

    def failed(self, part: Part, trouble: str) -> None:
        """``trouble`` completes a sentence that begins with the part. It quotes no error, so that it changes
        only with the trouble."""
        is_new = self._troubles.get(part) != trouble
        self._troubles[part] = trouble
        if is_new and self._has_started:
            self._log()

    def _log(self) -> None:
        logger.error("requests are answered without the cache: %s (see /admin/cache)", self.trouble)
