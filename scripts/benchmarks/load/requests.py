"""A request of the load generator, when it is sent, and the sample that it leaves."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

WANTED_HEADERS = ("x-cache", "x-served-by", "retry-after")


@dataclass(frozen=True)
class Request:
    """One HTTP request; POST if it has a body."""

    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    keep_body: bool = False
    """Whether the sample keeps the response's body."""


@dataclass(frozen=True)
class Sample:
    """The outcome of one request. Times are seconds after the start of the run, or between two events."""

    status: int
    """The HTTP status; 0 without a response."""
    sent_at: float
    ended_at: float
    late_s: float = 0.0
    """How long after its due time an open loop sent the request: the lateness of the generator itself."""
    ttft_s: float | None = None
    """The time from sending (including connecting) to the first bytes of a body."""
    gaps_s: tuple[float, ...] = ()
    """The times between chunks."""
    tokens: int = 0
    error: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """The ``WANTED_HEADERS`` that the response had."""
    body: bytes | None = None

    @property
    def refused(self) -> bool:
        """Whether a limit refused the request, which is not a failure."""
        return self.status in (429, 503)

    @property
    def failed(self) -> bool:
        return self.error is not None and not self.refused

    @property
    def ok(self) -> bool:
        return self.error is None


def chat_request(model: str, text: str, max_tokens: int, *, stream: bool = True, **more: Any) -> Request:
    """A chat with one user message; ``more`` holds more fields of the body."""
    messages = [{"role": "user", "content": text}]
    values = {"model": model, "messages": messages, "max_tokens": max_tokens, "stream": stream, **more}
    return Request("/v1/chat/completions", json.dumps(values).encode())


def poisson(requests: Iterable[Request], rate_per_s: float, seed: int = 0) -> list[tuple[float, Request]]:
    """Arrival times (seconds after the start) of a Poisson process."""
    gaps, at = random.Random(seed), 0.0
    arrivals = []
    for request in requests:
        at += gaps.expovariate(rate_per_s)
        arrivals.append((at, request))
    return arrivals
