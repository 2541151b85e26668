"""Where a request's milliseconds went: named steps with their start and end.

A timeline is filled while the request runs and read once at its end (``Server-Timing``, the request's
record), so that measuring costs two clock reads a step and nothing per token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

PRIVATE_STEPS = frozenset({"embed", "search", "ask-model"})
"""Steps that run on resources shared by all tenants. Their durations would reveal more than the request's own
affairs: how full the store is, what is being embedded. The other steps are about the request itself and about
load, which a client can measure with any clock."""

UPSTREAM_STEPS = frozenset({"upstream-ttft", "upstream", "upstream-failed", "joined", "ask-model"})
"""Steps in which a member works on the request; all other time is the gateway's own."""


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
    """The steps of one request. ``clock`` gives nanoseconds that never go back; ``unix_ns`` is the wall
    clock's time at the start, for what is read beside other machines' clocks."""

    clock: Callable[[], int]
    unix_ns: int = 0
    start_ns: int = field(init=False)
    steps: list[Step] = field(default_factory=list)
    first_byte_ns: int = field(default=0, init=False)
    """When the first bytes of the answer were there; 0 before."""
    last_byte_ns: int = field(default=0, init=False)
    """When the last byte had been sent; 0 before."""

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

    def at_unix_ns(self, clock_ns: int) -> int:
        """A time of the timeline's clock as Unix nanoseconds."""
        return self.unix_ns + clock_ns - self.start_ns

    def without_ns(self, names: Collection[str], end_ns: int) -> int:
        """Nanoseconds from the start to ``end_ns`` in which no step of ``names`` ran."""
        return end_ns - self.start_ns - covered_ns(self.steps, names, self.start_ns, end_ns)

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


def covered_ns(steps: Iterable[Step], names: Collection[str], start_ns: int, end_ns: int) -> int:
    """Nanoseconds between the two in which at least one step of ``names`` ran: attempts may overlap."""
    spans = sorted((step.start_ns, step.end_ns) for step in steps if step.name in names)
    covered, reached = 0, start_ns
    for began, ended in spans:
        until = min(ended, end_ns)
        if until > reached:
            covered += until - max(began, reached)
            reached = until
    return covered
