"""What ``GET /sim/stats`` shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Counters:
    """Events since the start."""

    requests: int = 0
    finished: int = 0
    aborted: int = 0
    """Requests whose client left before the end."""
    faulted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """The prompt tokens that came from the prefix cache."""
    generated_tokens: int = 0


@dataclass
class Stats(Counters):
    """Counters, and the present state."""

    running: int = 0
    waiting: int = 0
    connections: int = 0
    seen: list[dict[str, Any]] = field(default_factory=list)
    """The latest requests: path, headers, body."""
