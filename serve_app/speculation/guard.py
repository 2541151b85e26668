"""How deep to draft, so that speculation never costs more than it gains.

The engine's steps are counted in windows (:class:`Sample`). After each, :func:`decide` predicts the speed-up
of every depth from the acceptance measured and the cost at the present load, and moves when that is worth it.
At depth 0 nothing is measured: the guard tries depth 1 for a window, after pauses that double.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from serve_app.speculation.cost import StepCost
from serve_app.speculation.speed_up import acceptance_rate, speed_up

TRY_DEPTH = 1
SURPRISE = 1.5
"""Three standard errors of a share of n drafts, times the root of n; a share of one half has the widest."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Some decode steps. Floats, because old samples fade."""

    steps: float = 0.0
    request_steps: float = 0.0
    """Requests that decoded, summed over the steps."""
    drafts: float = 0.0
    """Those of them that had a draft."""
    drafted: float = 0.0
    """Tokens drafted."""
    accepted: float = 0.0
    """Tokens of drafts that were accepted."""

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            self.steps + other.steps,
            self.request_steps + other.request_steps,
            self.drafts + other.drafts,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
        )

    def faded(self, by: float) -> Sample:
        return Sample(
            self.steps * by, self.request_steps * by, self.drafts * by, self.drafted * by, self.accepted * by
        )

    @property
    def batch(self) -> float:
        """Requests a step, on average."""
        return self.request_steps / self.steps if self.steps else 0.0

    @property
    def coverage(self) -> float:
        """Share of the requests' steps that had a draft."""
        return self.drafts / self.request_steps if self.request_steps else 0.0

    @property
    def acceptance(self) -> float:
        """Of one token; see :func:`acceptance_rate`."""
        return acceptance_rate(self.drafts, self.drafted, self.accepted)

    def speed_up(self, cost: StepCost) -> float:
        """What these steps gained over steps without speculation, as measured."""
        if not self.request_steps:
            return 1.0
        per_request = self.drafted / self.request_steps
        return (1.0 + self.accepted / self.request_steps) / cost.of(per_request, self.batch)


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """``most``: the deepest it may draft. Gains are speed-ups over no speculation.

    ``rise`` above ``keep`` is the hysteresis. With pauses of 8, 16, … 64 windows, tries on text that cannot
    be drafted are at first one window in nine, then one in 65.
    """

    most: int
    window_steps: int = 32
    enough_drafts: float = 16.0
    memory: float = 0.5
    keep: float = 1.0
    rise: float = 1.02
    first_pause: int = 8
    longest_pause: int = 64

    def depths(self) -> range:
        return range(1, self.most + 1)


@dataclass(frozen=True, slots=True)
class GuardState:
    """``depth`` is what to draft until the next decision. ``tries``: it is 1 to see whether that would pay.
    ``pause``: windows until the next try while it is 0. ``reason`` is for logs and metrics."""

    depth: int
    evidence: Sample = Sample()
    tries: bool = False
    pause: int = 0
    next_pause: int = 0
    speed_up: float = 1.0
    reason: str = "not measured yet"


def begin(policy: GuardPolicy) -> GuardState:
    """Off for a window, then a try: what drafts cost shows only beside steps without."""
    return GuardState(0, pause=1, next_pause=policy.first_pause)


def decide(policy: GuardPolicy, state: GuardState, window: Sample, cost: StepCost) -> GuardState:
    """The state for the next window, from the one that ended. ``cost`` is the engine's at present."""
    if state.depth == 0:
        return _while_off(policy, state, window, cost)
    evidence = _evidence(policy, state.evidence, window)
    if evidence.drafts < policy.enough_drafts:
        return replace(state, evidence=evidence, reason="too few drafts to judge")
    gains = _gains(policy, evidence, window.batch, cost)
    best = max(gains, key=lambda depth: gains[depth])
    state = replace(state, evidence=evidence)
    if gains[best] < (policy.rise if state.tries else policy.keep):
        return _turned_off(policy, state, best, gains[best])
    now = gains[state.depth]
    worth_moving = state.tries or now < policy.keep or gains[best] >= now * policy.rise
    depth = best if worth_moving else state.depth
    return replace(
        state,
        depth=depth,
        tries=False,
        # A try that paid only by chance must not begin the pauses anew.
        next_pause=state.next_pause if state.tries else policy.first_pause,
        speed_up=gains[depth],
        reason=_reason(evidence, window.batch, depth, gains[depth]),
    )


def _evidence(policy: GuardPolicy, before: Sample, window: Sample) -> Sample:
    """What is known of the text: older windows fade, and are forgotten where the newest does not fit them."""
    if before.drafts < policy.enough_drafts:
        return before + window
    if window.drafts >= policy.enough_drafts:
        surprise = abs(window.acceptance - before.acceptance) * math.sqrt(window.drafts)
        if surprise > SURPRISE:
            return window
    return before.faded(policy.memory) + window


def _while_off(policy: GuardPolicy, state: GuardState, window: Sample, cost: StepCost) -> GuardState:
    """What was learned before still holds if only the load has changed; else it is time that passes."""
    if state.evidence.drafts >= policy.enough_drafts:
        gains = _gains(policy, state.evidence, window.batch, cost)
        best = max(gains, key=lambda depth: gains[depth])
        if gains[best] >= policy.rise:
            reason = _reason(state.evidence, window.batch, best, gains[best])
            return replace(state, depth=best, pause=0, speed_up=gains[best], reason=reason)
    if state.pause > 1:
        return replace(state, pause=state.pause - 1)
    reason = "tries whether the text has changed"
    return replace(state, depth=TRY_DEPTH, evidence=Sample(), tries=True, pause=0, reason=reason)


def _turned_off(policy: GuardPolicy, state: GuardState, best: int, gain: float) -> GuardState:
    measured = _reason(state.evidence, state.evidence.batch, best, gain)
    return replace(
        state,
        depth=0,
        tries=False,
        pause=state.next_pause,
        next_pause=min(2 * state.next_pause, policy.longest_pause),
        speed_up=1.0,
        reason=f"{measured}: off for {state.next_pause} windows",
    )


def _gains(policy: GuardPolicy, evidence: Sample, batch: float, cost: StepCost) -> Mapping[int, float]:
    """The speed-up to expect of each depth."""
    acceptance, coverage = evidence.acceptance, evidence.coverage
    costs = {depth: cost.of(depth, batch, coverage) for depth in policy.depths()}
    return {depth: speed_up(acceptance, depth, costs[depth], coverage) for depth in costs}


def _reason(evidence: Sample, batch: float, depth: int, gain: float) -> str:
    return (
        f"acceptance {evidence.acceptance:.2f} in {evidence.coverage:.0%} of the steps at batch {batch:.1f}: "
        f"{gain:.2f} x at depth {depth}"
    )
