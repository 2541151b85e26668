"""The log line of a finished request, and how many lines those who are refused may cause."""

from __future__ import annotations

import re
from enum import Enum
from typing import Literal

import msgspec

from serve_app.request.record import RequestRecord, shortened

PROBES = frozenset({"health", "ping", "ready"})
"""Endpoints that load balancers ask every second."""

FIRST_REFUSAL, FIRST_FAILURE = 400, 500

UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
"""A value from outside must not begin another line, or move a terminal's cursor."""


def is_probe(record: RequestRecord) -> bool:
    return record.endpoint in PROBES


class Bound(Enum):
    """Lines that share one bound: a flood of one kind hides no line of another."""

    STRANGER = "refused requests of clients without a key"
    REFUSED = "refused requests"
    CHEAP = "requests that need no key or were given up"


def bound_of(record: RequestRecord) -> Bound | None:
    """What bounds a request's line; ``None``: it is always written, as that of every failure of ours."""
    if record.status >= FIRST_FAILURE:
        return None
    if record.status >= FIRST_REFUSAL:
        return Bound.STRANGER if record.tenant is None else Bound.REFUSED
    is_cheap = record.status == 0 or record.tenant is None
    return Bound.CHEAP if is_cheap and record.model is None else None


def log_line(record: RequestRecord, form: Literal["text", "json"]) -> str:
    """One line; numbers in milliseconds, tokens as prompt/answer. Each text is cut at ``MOST_CHARS``."""
    record = shortened(record)
    if form == "json":
        return msgspec.json.encode(record).decode()
    tokens = record.tokens
    parts = {
        "trace_id": record.trace_id,
        "tenant": record.tenant,
        "model": record.model,
        "member": record.member,
        "session": record.session,
        "cache": record.cache,
        "experiment": record.experiment,
        "error": record.error,
        "client_gone": "yes" if record.client_gone else None,
        "finish": record.finish_reason,
        "tokens": None if tokens.output is None else f"{tokens.prompt}/{tokens.output}",
        "cached": tokens.cached,
        "accepted": tokens.accepted,
        "ttft_ms": None if record.ttft_ms is None else f"{record.ttft_ms:.1f}",
        "total_ms": f"{record.total_ms:.1f}",
        "upstream_ms": f"{record.upstream_ms:.1f}",
        "overhead_ms": f"{record.overhead_ms:.1f}",
    }
    known = " ".join([f"{name}={value}" for name, value in parts.items() if value is not None])
    asked = f"{record.method} {record.route} {record.status}"
    line = f"request_id={record.request_id} {asked} {known}"
    return line if line.isascii() and line.isprintable() else UNPRINTABLE.sub("?", line)


class RefusalBound:
    """Allows at most ``per_s`` lines a second on average, and ``most`` at once: one second's worth by
    default, at least one."""

    def __init__(self, per_s: float, now: float, most: float = 0.0) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s, most)
        self._left = self._most
        self._at = now
        self._left_out = 0

    def allows(self, now: float) -> bool:
        """Whether a line may be written at ``now`` (monotonic seconds)."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        return True

    def take_left_out(self) -> int:
        """Lines that were not written since the last call."""
        count, self._left_out = self._left_out, 0
        return count
