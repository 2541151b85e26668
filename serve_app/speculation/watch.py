"""The guard as an engine's scheduler runs it: fed with steps, it says how deep to draft next."""

from __future__ import annotations

from dataclasses import dataclass, field

from serve_app.speculation.cost import GPU_KNEE_TOKENS, StepCost, StepTimes
from serve_app.speculation.guard import GuardPolicy, GuardState, Sample, begin, decide


@dataclass(slots=True)
class Guard:
    """Counts what drafts gave in each window of steps, and decides at its end."""

    policy: GuardPolicy
    times: StepTimes = field(default_factory=StepTimes)
    _state: GuardState = field(init=False)
    _window: Sample = field(default_factory=Sample)

    def __post_init__(self) -> None:
        self._state = begin(self.policy)

    @property
    def depth(self) -> int:
        """Tokens to draft until :meth:`stepped` says otherwise."""
        return self._state.depth

    @property
    def is_trying(self) -> bool:
        """The depth is not what pays, but what shows whether drafting would."""
        return self._state.tries

    @property
    def reason(self) -> str:
        return self._state.reason

    def judged(self, drafted: int, accepted: int) -> None:
        """A request's draft came back: ``accepted`` of its ``drafted`` tokens hold."""
        self._window += Sample(drafts=1.0, drafted=drafted, accepted=accepted)

    def stepped(self, decoding: int, tokens: int, seconds: float | None) -> bool:
        """A step ended in which ``decoding`` requests decoded; whether :attr:`depth` is another one now.

        ``tokens`` were computed in ``seconds``: ``None`` if that tells nothing of decoding (a prompt was
        among them).
        """
        if not decoding:
            return False
        self._window += Sample(steps=1.0, request_steps=decoding)
        if seconds is not None:
            self.times.observe(tokens, seconds)
        if self._window.steps < self.policy.window_steps:
            return False
        return self._decide()

    def _decide(self) -> bool:
        cost = StepCost(knee_tokens=self.times.knee_tokens or GPU_KNEE_TOKENS)
        before, self._state = self._state, decide(self.policy, self._state, self._window, cost)
        self._window = Sample()
        return self._state.depth != before.depth
