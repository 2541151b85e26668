"""How fast an engine is, measured from its steps: exponentially weighted means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SMOOTHING = 0.1
"""Weight of the newest sample, as in ``serve_app.fleet.pace``: about the last twenty count."""


@dataclass(slots=True)
class EngineSpeed:
    """``prefill_tokens_per_s``: prompt tokens (those in the prefix cache too, for arrivals are counted with
    them) while some prompt was unfinished; ``service_s``: from a request's first step to its last token;
    ``itl_s``: between two tokens of a stream. ``None``: nothing was seen yet. Times are monotonic seconds."""

    service_s: float | None = None
    itl_s: float | None = None
    _tokens: float = 0.0
    _busy_s: float = 0.0
    _prompts: int = 0
    _prefilled_at: float | None = None
    _services: int = 0
    _gaps: int = 0

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return self._tokens / self._busy_s if self._busy_s else None

    def prefilled(self, tokens: float, ttfts_s: Sequence[float], now: float, *, full: bool) -> None:
        """Prompts of ``tokens`` in all were done at ``now``; ``ttfts_s`` is how long ago each had come.

        Prompts wait for each other: the engine was busy with them since the oldest came, or since others
        were done. ``full``: the engine runs as many requests as it can. Then prompts wait for a place too,
        which says nothing of the pace. A ratio of means, not the mean of ratios: short prompts, whose time
        is all overhead, weigh as little as they are long.
        """
        since, self._prefilled_at = self._prefilled_at, now
        if full or not ttfts_s or tokens <= 0:
            return
        busy_s = max(ttfts_s) if since is None else min(max(ttfts_s), now - since)
        if busy_s > 0:
            self._tokens = _mean(self._tokens, tokens, self._prompts)
            self._busy_s = _mean(self._busy_s, busy_s, self._prompts)
            self._prompts += 1

    def served(self, seconds: float) -> None:
        """A request has kept its place for so long."""
        self.service_s = _mean(self.service_s or 0.0, seconds, self._services)
        self._services += 1

    def decoded(self, gaps_s: Sequence[float]) -> None:
        """What one step gave to the streams that run: seconds since the token before, of each."""
        if gaps_s:
            self.itl_s = _mean(self.itl_s or 0.0, sum(gaps_s) / len(gaps_s), self._gaps)
            self._gaps += 1


def _mean(known: float, sample: float, samples: int) -> float:
    """The plain mean of the first samples, so that none of them weighs more than it should."""
    return known + max(SMOOTHING, 1 / (samples + 1)) * (sample - known)
