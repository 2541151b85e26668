"""What speculation gains an engine, from its own statistics: for operators, the guard does not use it."""

from __future__ import annotations

from dataclasses import dataclass, field

from serve_app.speculation.cost import StepCost, StepTimes
from serve_app.speculation.drafting import Drafting

MEMORY = 0.998
"""Factor on a step's weight with each newer step: about the last five hundred steps count."""

DEPTH_STEPS = 32
"""The reported depth is the maximum over the last 32 to 64 steps."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts over some decode steps of the engine, at any depth. Floats, because old steps fade.

    ``drafts``: requests that had a draft, summed over the steps; ``given``: the result of these drafts.
    """

    steps: float = 0.0
    drafts: float = 0.0
    given: Drafting = field(default_factory=Drafting)

    def __add__(self, other: Sample) -> Sample:
        return Sample(self.steps + other.steps, self.drafts + other.drafts, self.given + other.given)

    def faded(self, by: float) -> Sample:
        return Sample(self.steps * by, self.drafts * by, self.given.faded(by))

    def speed_up(self, cost: StepCost) -> float:
        """The measured speed-up of these steps over steps that check no draft."""
        if not self.steps:
            return 1.0
        batch = self.given.steps / self.steps
        return cost.speed_up(self.given.drafted_a_step, self.given.accepted_a_step, batch)


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """The first two are counters since the engine's start; the rest describes its newest steps.

    ``acceptance_rate``: accepted over drafted tokens. ``mean_accepted_length``: tokens that a draft yields,
    including the target model's own one (both as vLLM counts them). ``depth``: the longest draft; 0: none.
    ``speed_up``: estimated, over steps that check no draft (where a model drafts, they draft all the same);
    ``None`` while the steps' durations do not show it.
    """

    draft_tokens: int = 0
    accepted_tokens: int = 0
    acceptance_rate: float = 0.0
    mean_accepted_length: float = 1.0
    depth: int = 0
    speed_up: float | None = None


@dataclass(frozen=True, slots=True)
class StepCounts:
    """One step of the engine, from its statistics.

    ``decoding``: requests that decoded; ``prefilled``: those whose prefill ended in it. ``drafts``,
    ``drafted`` and ``accepted`` as in :class:`Sample`, ``longest`` the longest draft. ``goes_on``: the engine
    has work left, so the next step begins at once.
    """

    decoding: int
    prefilled: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    longest: int = 0
    goes_on: bool = False


@dataclass(slots=True)
class SpeculationMeter:
    """Adds up steps; ``now`` is any clock in seconds."""

    _draft_tokens: int = 0
    _accepted_tokens: int = 0
    _recent: Sample = field(default_factory=Sample)
    _times: StepTimes = field(default_factory=StepTimes)
    _began: float | None = None
    _steps: int = 0
    _longest: int = 0
    _longest_before: int = 0

    def observe(self, step: StepCounts, now: float) -> None:
        """A step ended at ``now``."""
        self._draft_tokens += step.drafted
        self._accepted_tokens += step.accepted
        if step.decoding:
            given = Drafting(step.decoding, step.drafted, step.accepted)
            self._recent = self._recent.faded(MEMORY) + Sample(1.0, step.drafts, given)
            self._note_depth(step.longest)
        if self._began is not None and step.decoding and not step.prefilled:
            self._times.observe(step.decoding + step.drafted, now - self._began)
        self._began = now if step.goes_on else None

    def report(self) -> SpeculationReport:
        recent, knee = self._recent, self._times.knee_tokens
        given = recent.given
        return SpeculationReport(
            draft_tokens=self._draft_tokens,
            accepted_tokens=self._accepted_tokens,
            acceptance_rate=given.accepted / given.drafted if given.drafted else 0.0,
            mean_accepted_length=1.0 + (given.accepted / recent.drafts if recent.drafts else 0.0),
            depth=max(self._longest, self._longest_before),
            speed_up=None if knee is None else recent.speed_up(StepCost(knee_tokens=knee)),
        )

    def _note_depth(self, longest: int) -> None:
        self._steps += 1
        self._longest = max(self._longest, longest)
        if self._steps % DEPTH_STEPS == 0:
            self._longest_before, self._longest = self._longest, 0
