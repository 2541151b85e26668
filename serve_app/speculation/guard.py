"""How deep to draft, so that speculation never costs more than it gains.

The engine's steps are counted in windows. After each window, :func:`decide` predicts the speed-up of every
depth and changes the depth when that pays: a step that accepts A drafted tokens yields 1 + A tokens instead
of one, and takes longer by the tokens it has to verify (theorem 3.8 of Leviathan, Kalman & Matias, "Fast
Inference from Transformers via Speculative Decoding", ICML 2023, arXiv:2211.17192, with any cost of a step).

A is what was counted at that depth. For depths deeper than any observed, it is extrapolated with the
acceptance rate of the tokens before (equation 1 there). Where drafts can be judged in hindsight (see
``hindsight``), all depths are known whichever is in use, and a trial drafts without verifying anything.
Otherwise nothing is known while the depth is 0, and a trial drafts one token for a window, after pauses that
double.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from serve_app.speculation.cost import StepCost
from serve_app.speculation.drafting import Depths, Drafting, added, nothing

TRY_DEPTH = 1
SURPRISE = 3.0
"""Threshold for a change of the acceptance rate: six standard errors of a share over n steps, times the root
of n (a share of one half has the widest). Three standard errors would be exceeded by chance, because
consecutive steps are alike."""


@dataclass(frozen=True, slots=True)
class Window:
    """Counts over some decode steps of the engine."""

    steps: int
    request_steps: int
    """Requests that decoded, summed over the steps."""
    depths: Depths
    """What drafting gave at each depth; 0 steps for depths that were not observed."""

    @property
    def batch(self) -> float:
        """Requests per step, on average."""
        return self.request_steps / self.steps


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """``most``: the deepest draft allowed. Gains are speed-ups over steps that check no draft.

    ``rise`` above ``keep`` is the hysteresis. With pauses of 8, 16, … 64 windows, trials on text that cannot
    be drafted take one window in nine at first, then one in 65. ``hindsight``: drafts can be judged without
    verifying them; a trial then costs only the drafting, so there are more of them.
    """

    most: int
    hindsight: bool = False
    window_steps: int = 32
    enough_steps: float = 16.0
    memory: float = 0.8
    keep: float = 1.0
    rise: float = 1.02
    first_pause: int = 8
    longest_pause: int = 64

    @classmethod
    def with_hindsight(cls, most: int) -> GuardPolicy:
        return cls(most, hindsight=True, first_pause=2, longest_pause=8)


@dataclass(frozen=True, slots=True)
class GuardState:
    """``depth`` is how many drafted tokens to verify until the next decision. ``evidence``: what is known
    about the present text. ``tries``: this window is a trial that shows whether drafting would pay.
    ``pause``: windows until the next trial while the depth is 0. ``reason`` is for logs and metrics."""

    depth: int
    evidence: Depths
    tries: bool = False
    pause: int = 0
    next_pause: int = 0
    speed_up: float = 1.0
    reason: str = "not measured yet"


def begin(policy: GuardPolicy) -> GuardState:
    """The first window verifies no draft: the cost of drafts only shows against steps without them."""
    state = GuardState(0, nothing(policy.most), pause=1, next_pause=policy.first_pause)
    return replace(state, tries=True) if policy.hindsight else state


def drafts(policy: GuardPolicy, state: GuardState) -> int:
    """How many tokens to draft; ``state.depth`` of them are verified."""
    if not policy.hindsight:
        return state.depth
    return policy.most if state.depth or state.tries else 0


def decide(policy: GuardPolicy, state: GuardState, window: Window, cost: StepCost) -> GuardState:
    """The state for the next window, from the one that ended and the engine's present ``cost``."""
    if not drafts(policy, state):
        return _paused(policy, state, window, cost)
    state = replace(state, evidence=_evidence(policy, state, window.depths))
    if state.evidence[0].steps < policy.enough_steps:
        return replace(state, reason="too few steps to judge")
    gains = _gains(state.evidence, window.batch, cost)
    best = max(gains, key=lambda depth: gains[depth])
    if gains[best] < (policy.rise if state.tries else policy.keep):
        return _turned_off(policy, state, window.batch, best, gains[best])
    depth = best if _is_worth_moving(policy, state, gains, best) else state.depth
    return replace(
        state,
        depth=depth,
        tries=False,
        # A trial that paid only by chance must not reset the pauses.
        next_pause=state.next_pause if state.tries else policy.first_pause,
        speed_up=gains[depth],
        reason=_reason(state.evidence, window.batch, depth, gains[depth]),
    )


def _is_worth_moving(policy: GuardPolicy, state: GuardState, gains: Mapping[int, float], best: int) -> bool:
    if state.tries:
        return True
    now = gains[state.depth]
    return now < policy.keep or gains[best] >= now * policy.rise


def _evidence(policy: GuardPolicy, state: GuardState, window: Depths) -> Depths:
    """What is known about the text. Older windows fade once there are enough steps. They are dropped where
    the newest window contradicts them, or has no steps at their depth."""
    before = state.evidence
    if not window[0].steps:
        return before
    if before[0].steps < policy.enough_steps:
        return added(before, window)
    if _surprises(policy, before, window):
        return window
    return tuple(
        old.faded(policy.memory) + new if new.steps else Drafting()
        for old, new in zip(before, window, strict=True)
    )


def _surprises(policy: GuardPolicy, before: Depths, window: Depths) -> bool:
    """Whether the acceptance has changed, judged at the deepest depth that both know well enough."""
    for depth in range(len(window), 0, -1):
        old, new = before[depth - 1], window[depth - 1]
        if min(old.steps, new.steps) >= policy.enough_steps:
            gap = abs(new.accepted_a_step - old.accepted_a_step) / depth
            return gap * math.sqrt(new.steps) > SURPRISE
    return False


def _paused(policy: GuardPolicy, state: GuardState, window: Window, cost: StepCost) -> GuardState:
    """While paused: draft again if the earlier evidence pays at the present load, else count down to the next
    trial."""
    if state.evidence[0].steps >= policy.enough_steps:
        gains = _gains(state.evidence, window.batch, cost)
        best = max(gains, key=lambda depth: gains[depth])
        if gains[best] >= policy.rise:
            reason = _reason(state.evidence, window.batch, best, gains[best])
            return replace(state, depth=best, pause=0, speed_up=gains[best], reason=reason)
    if state.pause > 1:
        return replace(state, pause=state.pause - 1)
    return replace(
        state,
        depth=0 if policy.hindsight else TRY_DEPTH,
        evidence=nothing(policy.most),
        tries=True,
        pause=0,
        reason="tries whether the text has changed",
    )


def _turned_off(policy: GuardPolicy, state: GuardState, batch: float, best: int, gain: float) -> GuardState:
    return replace(
        state,
        depth=0,
        tries=False,
        pause=state.next_pause,
        next_pause=min(2 * state.next_pause, policy.longest_pause),
        speed_up=1.0,
        reason=f"{_reason(state.evidence, batch, best, gain)}: off for {state.next_pause} windows",
    )


def _gains(evidence: Depths, batch: float, cost: StepCost) -> Mapping[int, float]:
    """The expected speed-up of each depth."""
    depths = range(1, len(evidence) + 1)
    return {depth: cost.speed_up(*expected(evidence, depth), batch) for depth in depths}


def expected(evidence: Depths, depth: int) -> tuple[float, float]:
    """Expected drafted and accepted tokens per step at ``depth``. Depth 1 must have been observed."""
    known = max(number for number in range(1, depth + 1) if evidence[number - 1].steps)
    last, before = evidence[known - 1], evidence[known - 2] if known > 1 else Drafting()
    drafted, accepted = last.drafted_a_step, last.accepted_a_step
    more_drafted = drafted - before.drafted_a_step
    more_accepted = accepted - before.accepted_a_step
    chance = _acceptance(evidence, known)
    for _ in range(depth - known):
        more_accepted *= chance
        drafted, accepted = drafted + more_drafted, accepted + more_accepted
    return drafted, accepted


def _acceptance(evidence: Depths, depth: int) -> float:
    """Acceptance rate of a token that is judged: a draft is judged up to its first wrong token."""
    first, last = evidence[0], evidence[depth - 1]
    before = evidence[depth - 2].accepted_a_step if depth > 1 else 0.0
    judged = first.drafted_a_step + before
    return min(1.0, last.accepted_a_step / judged) if judged else 0.0


def _reason(evidence: Depths, batch: float, depth: int, gain: float) -> str:
    drafted, accepted = expected(evidence, depth)
    return (
        f"{accepted:.2f} of {drafted:.2f} drafted tokens hold in a step at batch {batch:.1f}: "
        f"{gain:.2f} x at depth {depth}"
    )
