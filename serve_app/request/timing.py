"""Where a request's milliseconds went: named steps with their start and end.

A timeline is filled while the request runs and read once at its end (``Server-Timing``, spans,
latency windows), so that measuring costs two clock reads a step and nothing per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

PRIVATE_STEPS = frozenset({"embed", "search", "ask-model"})
"""Steps that run on resources shared by all tenants. Their durations would reveal more than the request's own
affairs: how full the store is, what is being embedded. The other steps are about the request itself and about
load, which a client can measure with any clock."""


class Step(msgspec.Struct, frozen=True):
    """One named step; times in nanoseconds of the timeline's clock."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def duration_ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(slots=True)
class Timeline:
    """The steps of one request. ``clock`` gives wall-clock nanoseconds (spans carry wall-clock times)."""

    clock: Callable[[], int]
    start_ns: int = field(init=False)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start_ns = self.clock()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the block as one step, also when it raises."""
        start = self.clock()
        try:
            yield
        finally:
            self.steps.append(Step(name, start, self.clock()))

    def add(self, name: str, start_ns: int) -> None:
        """Record a step that began at ``start_ns`` and ends now."""
        self.steps.append(Step(name, start_ns, self.clock()))

    def elapsed_ms(self) -> float:
        return (self.clock() - self.start_ns) / 1e6

    def server_timing(self, *, whole: bool = True) -> str:
        """The ``Server-Timing`` header (W3C Server Timing): steps in order, durations in ms. Without
        ``whole`` it leaves out ``PRIVATE_STEPS``."""
        return ", ".join(
            [
                f"{step.name};dur={(step.end_ns - step.start_ns) / 1e6:.2f}"
                for step in self.steps
                if whole or step.name not in PRIVATE_STEPS
            ]
        )
