"""Where a request's milliseconds went: named steps with their start and end.

A timeline is filled while the request runs and read once at its end (``Server-Timing``, the request's
record), so that measuring costs two clock reads a step and nothing per token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from serve_app.openai.usage import EngineTimes

PRIVATE_STEPS = frozenset({"embed", "search", "decide", "ask-model"})
"""Steps that run on resources shared by all tenants. Their durations would reveal more than the request's own
affairs: how full the store is, what is being embedded. The other steps are about the request itself and about
load, which a client can measure with any clock."""

FIRST_BYTE = "upstream-ttft"
"""The step from sending a request to a member to the first bytes of its answer; of a whole answer, to its
last."""

EMBEDDER = "embedder"
"""The embedder answers the request itself; ``embed`` is its part in a look-up."""

UPSTREAM_STEPS = frozenset(
    {FIRST_BYTE, "upstream", "upstream-failed", "upstream-left", "joined", "ask-model", EMBEDDER}
)
"""Steps in which a member or the embedder works on the request; all other time is the gateway's own."""


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

    def add_lasting(self, name: str, start_ns: int, duration_ns: int) -> None:
        """Record a step whose length someone else has measured."""
        self.steps.append(Step(name, start_ns, start_ns + duration_ns))

    def add_engine(self, times: EngineTimes, *, streamed: bool) -> None:
        """Record the engine's own steps. The engine tells how long they took, not when: the first token of a
        stream was made just before its first byte came, the last token of a whole answer just before that."""
        answered = next((step for step in reversed(self.steps) if step.name == FIRST_BYTE), None)
        if answered is None:
            return  # another client's request was answered, and this one joined it
        queue, prefill, decode = (
            None if took is None else round(took * 1e6)
            for took in (times.queue_ms, times.prefill_ms, times.decode_ms)
        )
        first_token = answered.end_ns if streamed else answered.end_ns - (decode or 0)
        scheduled = first_token - (prefill or 0)
        for name, start, took in (
            ("engine-queue", scheduled - (queue or 0), queue),
            ("prefill", scheduled, prefill),
            ("decode", first_token, decode),
        ):
            if took is not None:
                self.add_lasting(name, max(start, answered.start_ns), took)

    def elapsed_ms(self) -> float:
        return (self.clock() - self.start_ns) / 1e6

    def at_unix_ns(self, clock_ns: int) -> int:
        """A time of the timeline's clock as Unix nanoseconds."""
        return self.unix_ns + clock_ns - self.start_ns

    def without_ns(self, names: Collection[str], end_ns: int) -> int:
        """Nanoseconds from the start to ``end_ns`` in which no step of ``names`` ran."""
        return end_ns - self.start_ns - covered_ns(self.steps, names, self.start_ns, end_ns)

    def server_timing(self, *, whole: bool = True, ended: bool = False) -> str:
        """The ``Server-Timing`` header (W3C Server Timing): steps in order, durations in ms. Without
        ``whole`` it leaves out ``PRIVATE_STEPS``. ``ended``: the answer is complete, so the gateway's own
        part is known (``overhead``); with it the private steps would show, so they are taken from it."""
        parts = [
            f"{step.name};dur={(step.end_ns - step.start_ns) / 1e6:.2f}"
            for step in self.steps
            if whole or step.name not in PRIVATE_STEPS
        ]
        if ended:
            now = self.clock()
            not_own = UPSTREAM_STEPS if whole else UPSTREAM_STEPS | PRIVATE_STEPS
            parts.append(f"overhead;dur={self.without_ns(not_own, now) / 1e6:.2f}")
            if whole:
                parts.append(f"total;dur={(now - self.start_ns) / 1e6:.2f}")
        return ", ".join(parts)


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
