"""How fast an engine is, measured from its steps: exponentially weighted means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.smoothing import mean

STALE_S = 60.0
"""Measurements older than this were taken under another load and are dropped. Otherwise the slow answers of a
busy time would keep a fleet large that has one client left."""


@dataclass(slots=True)
class EngineSpeed:
    """``prefill_tokens_per_s``: prompt tokens per second while some prompt was unfinished (tokens found in
    the prefix cache count too, because arrivals are counted with them); ``service_s``: from a request's first
    step to its last token; ``itl_s``: between two tokens of a stream. ``None``: nothing measured yet. Times
    are monotonic seconds."""

    service_s: float | None = None
    itl_s: float | None = None
    _tokens: float = 0.0
    _busy_s: float = 0.0
    _prompts: int = 0
    _prefilled_at: float | None = None
    _measured_at: float = -math.inf
    _services: int = 0
    _gaps: int = 0

    def recent(self, now: float) -> EngineSpeed:
        """This measurement, or an empty one if the engine has been idle for ``STALE_S``."""
        return self if now - self._measured_at < STALE_S else EngineSpeed()

    def _reset_if_stale(self, now: float) -> None:
        if now - self._measured_at >= STALE_S:
            self.service_s = self.itl_s = None
            self._tokens = self._busy_s = 0.0
            self._prompts = self._services = self._gaps = 0
        self._measured_at = now

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return self._tokens / self._busy_s if self._busy_s else None

    def prefilled(self, tokens: float, ttfts_s: Sequence[float], now: float, *, full: bool) -> None:
        """Prompts of ``tokens`` in total finished their prefill at ``now``; ``ttfts_s`` is how long ago each
        had arrived.

        Prompts wait for each other: the engine was busy with these since the oldest arrived, or since the
        prompts before were done. ``full``: the engine runs as many requests as it can. Prompts then also wait
        for a slot, which says nothing about speed, so they are not counted. The speed is a ratio of means,
        not a mean of ratios: short prompts, whose time is all overhead, then weigh only as much as their
        length.
        """
        since, self._prefilled_at = self._prefilled_at, now
        if full or not ttfts_s or tokens <= 0:
            return
        busy_s = max(ttfts_s) if since is None else min(max(ttfts_s), now - since)
        if busy_s > 0:
            self._reset_if_stale(now)
            self._tokens = mean(self._tokens, tokens, self._prompts)
            self._busy_s = mean(self._busy_s, busy_s, self._prompts)
            self._prompts += 1

    def served(self, seconds: float, now: float) -> None:
        """A request that ends ``now`` has run for ``seconds``."""
        self._reset_if_stale(now)
        self.service_s = mean(self.service_s or 0.0, seconds, self._services)
        self._services += 1

    def decoded(self, gaps_s: Sequence[float], now: float) -> None:
        """One step gave a token to each running stream; ``gaps_s`` are the seconds since each one's last."""
        if gaps_s:
            self._reset_if_stale(now)
            self.itl_s = mean(self.itl_s or 0.0, sum(gaps_s) / len(gaps_s), self._gaps)
            self._gaps += 1
