"""The traffic of the last minutes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

BIN_S = 1.0
"""Looks that follow each other faster than this are counted together: 600 bins for ten minutes."""

LEAST_S = 60.0
"""Nothing is taken to have come before the first look, for so long at least: else all that is seen at first
would look like steady traffic."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Requests and prompt tokens that came within the ``seconds`` before ``end``."""

    end: float
    seconds: float
    requests: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Arrivals per second."""

    requests: float = 0.0
    tokens: float = 0.0


class Arrivals:
    """Bins of the last ``window_s`` seconds, oldest first; looks in which nothing came share one bin."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._bins: deque[Bin] = deque()
        self._requests = 0.0
        self._seen_until = -math.inf

    @property
    def bins(self) -> Sequence[Bin]:
        return self._bins

    @property
    def seen_until(self) -> float:
        """The time of the last look."""
        return self._seen_until

    @property
    def requests(self) -> float:
        """Requests within the window."""
        return self._requests

    @property
    def independent(self) -> float:
        """How many independent arrivals they are worth: bursts say less than single requests do.

        Requests over their index of dispersion (variance over mean of the requests by second; 1 if they come
        independently of each other, more in bursts).
        """
        if not self._requests:
            return 0.0
        seconds = max(LEAST_S, self._bins[-1].end - self._bins[0].end)
        squares = sum(bin_.requests**2 for bin_ in self._bins)
        return self._requests / max(1.0, squares / self._requests - self._requests / seconds)

    def add(self, requests: float, tokens: float, now: float) -> None:
        """What came since the last call."""
        elapsed_s = now - self._seen_until if self._bins else 0.0
        self._seen_until = now
        self._requests += requests
        last = self._bins[-1] if self._bins else None
        if last is not None and self._joins(last, requests, elapsed_s):
            elapsed_s += last.seconds
            self._bins[-1] = Bin(now, elapsed_s, last.requests + requests, last.tokens + tokens)
        else:
            self._bins.append(Bin(now, elapsed_s, requests, tokens))
        while self._bins[0].end < now - self._window_s:
            self._requests -= self._bins.popleft().requests

    @staticmethod
    def _joins(last: Bin, requests: float, elapsed_s: float) -> bool:
        both_idle = not last.requests and not requests
        return both_idle or last.seconds + elapsed_s <= BIN_S

    def rate(self, since: float, until: float) -> Rate:
        """Mean over the bins that ended after ``since`` and no later than ``until``."""
        requests = tokens = 0.0
        for bin_ in reversed(self._bins):
            if bin_.end <= since:
                break
            if bin_.end <= until:
                requests += bin_.requests
                tokens += bin_.tokens
        seconds = until - since
        return Rate(requests / seconds, tokens / seconds)

    def forecast(self, now: float, lead_s: float) -> Rate:
        """Expected over the next ``lead_s``: as in the last ``lead_s``, and growing on as it grew since the
        ``lead_s`` before. It at most doubles (a burst has no trend), and it does not shrink: who scales
        down looks at what was, not at what may be."""
        last = self.rate(now - lead_s, now)
        before = self.rate(now - 2 * lead_s, now - lead_s)
        return Rate(_grown(before.requests, last.requests), _grown(before.tokens, last.tokens))


def _grown(before: float, last: float) -> float:
    return last + min(max(0.0, last - before), last)
