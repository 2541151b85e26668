"""How deep to draft, so that speculation never costs more than it gains.

The engine's steps are counted in windows. After each, :func:`decide` predicts the speed-up of every depth
and moves when that is worth it: a step that keeps A of its drafted tokens gives 1 + A where it gave one, and
takes longer by what there is to check (theorem 3.8 of Leviathan, Kalman & Matias, "Fast Inference from
Transformers via Speculative Decoding", ICML 2023, arXiv:2211.17192, with any cost of a step).

A is what was counted at that depth or, deeper than was looked, continues as if each token held with the
chance that those before it had (equation 1 there). Where drafts can be judged in hindsight (see
``hindsight``), all depths are known whichever is in use, and a try is a look that checks nothing. Else
nothing is known while the depth is 0, and a try drafts one token for a window, after pauses that double.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from serve_app.speculation.cost import StepCost
from serve_app.speculation.drafting import Depths, Drafting, added, nothing

TRY_DEPTH = 1
SURPRISE = 3.0
"""Six standard errors of a share of n steps, times the root of n; a share of one half has the widest. Three
would be passed by chance: steps that follow each other are alike."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some decode steps of the engine."""

    steps: int
    request_steps: int
    """Requests that decoded, summed over the steps."""
    depths: Depths
    """What drafting gave; without steps where it was not seen."""

    @property
    def batch(self) -> float:
        """Requests a step, on average."""
        return self.request_steps / self.steps


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """``most``: the deepest it may draft. Gains are speed-ups over no speculation.

    ``rise`` above ``keep`` is the hysteresis. With pauses of 8, 16, … 64 windows, tries on text that cannot
    be drafted are at first one window in nine, then one in 65. ``hindsight``: drafts can be judged without
    being checked; a look costs only the drafting, so there are more of them.
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
    """``depth`` is how much of a draft to check until the next decision. ``evidence``: what is known of the
    text. ``tries``: this window is to show whether drafting would pay. ``pause``: windows until the next try
    while the depth is 0. ``reason`` is for logs and metrics."""

    depth: int
    evidence: Depths
    tries: bool = False
    pause: int = 0
    next_pause: int = 0
    speed_up: float = 1.0
    reason: str = "not measured yet"


def begin(policy: GuardPolicy) -> GuardState:
    """Nothing is checked in the first window: what drafts cost shows only beside steps without."""
    state = GuardState(0, nothing(policy.most), pause=1, next_pause=policy.first_pause)
    return replace(state, tries=True) if policy.hindsight else state


def drafts(policy: GuardPolicy, state: GuardState) -> int:
    """How many tokens to draft; of them ``state.depth`` are checked."""
    if not policy.hindsight:
        return state.depth
    return policy.most if state.depth or state.tries else 0


def decide(policy: GuardPolicy, state: GuardState, window: Window, cost: StepCost) -> GuardState:
    """The state for the next window, from the one that ended. ``cost`` is the engine's at present."""
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
        # A try that paid only by chance must not begin the pauses anew.
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
    """What is known of the text: older windows fade once there are enough, and are forgotten where the newest
    does not fit them, or says nothing of their depth."""
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
    """Judged by the deepest that both know."""
    for depth in range(len(window), 0, -1):
        old, new = before[depth - 1], window[depth - 1]
        if min(old.steps, new.steps) >= policy.enough_steps:
            gap = abs(new.accepted_a_step - old.accepted_a_step) / depth
            return gap * math.sqrt(new.steps) > SURPRISE
    return False


def _paused(policy: GuardPolicy, state: GuardState, window: Window, cost: StepCost) -> GuardState:
    """What was learned before still holds if only the load has changed; else it is time that passes."""
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
    """The speed-up to expect of each depth."""
    depths = range(1, len(evidence) + 1)
    return {depth: cost.speed_up(*expected(evidence, depth), batch) for depth in depths}


def expected(evidence: Depths, depth: int) -> tuple[float, float]:
    """Tokens drafted and accepted in a step at ``depth``; the first depth was seen."""
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
    """Of one token that is reached: those of a draft are judged up to the first that does not hold."""
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
