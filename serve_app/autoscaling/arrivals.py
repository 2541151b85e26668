"""The arrivals of the last minutes, and their trend."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

BIN_S = 1.0
"""Observations closer together than this share one bin: at most 600 bins for ten minutes. It bounds the time
of a replay and decides nothing."""

LEAST_S = 60.0
"""The time before the first observation counts as at least this long and without requests. Otherwise the
first requests would look like steady traffic, and more of the code trace's answers would be late."""


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
    """The bins of the last ``window_s`` seconds, oldest first; consecutive observations without requests
    share one bin."""

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
        """The time of the last observation."""
        return self._seen_until

    @property
    def requests(self) -> float:
        """Requests within the window."""
        return self._requests

    @property
    def independent(self) -> float:
        """How many independent arrivals the window's requests are equivalent to: a burst says less about the
        traffic than the same number of separate requests.

        Requests divided by their index of dispersion (variance over mean of the requests per second: 1 for
        independent arrivals, more for bursts).
        """
        if not self._requests:
            return 0.0
        seconds = max(LEAST_S, self._bins[-1].end - self._bins[0].end)
        squares = sum(bin_.requests**2 for bin_ in self._bins)
        return self._requests / max(1.0, squares / self._requests - self._requests / seconds)

    def add(self, requests: float, tokens: float, now: float) -> None:
        """Count what arrived since the last call."""
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
        """The mean rate over the bins that ended after ``since`` and no later than ``until``."""
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
        """Expected rate over the next ``lead_s``: the rate of the last ``lead_s`` plus its growth since the
        ``lead_s`` before that. It at most doubles, because a burst has no trend. It never predicts a decline:
        scaling down depends on past traffic, not on a forecast."""
        last = self.rate(now - lead_s, now)
        before = self.rate(now - 2 * lead_s, now - lead_s)
        return Rate(_grown(before.requests, last.requests), _grown(before.tokens, last.tokens))


def _grown(before: float, last: float) -> float:
    return last + min(max(0.0, last - before), last)
