"""The guard as an engine's scheduler runs it: it counts steps and says how deep to draft next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.speculation.cost import GPU_KNEE_TOKENS, StepCost, StepTimes
from serve_app.speculation.drafting import Depths, Drafting, at_depth
from serve_app.speculation.guard import GuardPolicy, GuardState, Window, begin, decide, drafts
from serve_app.speculation.hindsight import Hindsight


@dataclass(slots=True)
class Guard:
    """Counts the results of drafts in each window of steps, and decides at the window's end.

    It learns of drafts in one of two ways: through :meth:`offered` if the policy has hindsight, else through
    :meth:`judged`.
    """

    policy: GuardPolicy
    times: StepTimes = field(default_factory=StepTimes)
    _state: GuardState = field(init=False)
    _hindsight: Hindsight = field(init=False)
    _judged: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Drafts by number of drafted and of accepted tokens."""

    _steps: int = 0
    _request_steps: int = 0

    def __post_init__(self) -> None:
        self._state = begin(self.policy)
        self._hindsight = Hindsight(self.policy.most)

    @property
    def depth(self) -> int:
        """Drafted tokens to verify until :meth:`stepped` returns true."""
        return self._state.depth

    @property
    def drafts(self) -> int:
        """Tokens to draft until then."""
        return drafts(self.policy, self._state)

    @property
    def is_trying(self) -> bool:
        """This window is a trial that shows whether drafting would pay."""
        return self._state.tries

    @property
    def reason(self) -> str:
        return self._state.reason

    def offered(self, request: str, tokens: Sequence[int], draft: Sequence[int]) -> None:
        """The draft that continues a request's ``tokens``, before it is cut to :attr:`depth`."""
        self._hindsight.offered(request, tokens, draft)

    def judged(self, drafted: int, accepted: int) -> None:
        """A request's draft was verified: ``accepted`` of its ``drafted`` tokens were right."""
        self._judged[drafted, accepted] += 1

    def stepped(self, decoding: int, tokens: int, seconds: float | None) -> bool:
        """A step ended in which ``decoding`` requests decoded. Returns whether :attr:`depth` or
        :attr:`drafts` has changed.

        The step computed ``tokens`` in ``seconds``; ``None`` if its duration does not measure decoding (it
        also held a prompt).
        """
        if not decoding:
            return False
        self._steps += 1
        self._request_steps += decoding
        if seconds is not None:
            self.times.observe(tokens, seconds)
        if self._steps < self.policy.window_steps:
            return False
        return self._decide()

    def _decide(self) -> bool:
        cost = StepCost(knee_tokens=self.times.knee_tokens or GPU_KNEE_TOKENS)
        depths = self._hindsight.take() if self.policy.hindsight else self._of_judged()
        window = Window(self._steps, self._request_steps, depths)
        before, self._state = self._state, decide(self.policy, self._state, window, cost)
        self._steps = self._request_steps = 0
        self._judged.clear()
        return (self._state.depth, self._state.tries) != (before.depth, before.tries)

    def _of_judged(self) -> Depths:
        """Results by depth, steps without a draft included; nothing is known beyond the depth in use."""
        without = max(self._request_steps - self._judged.total(), 0)
        return tuple(
            at_depth(depth, self._judged, without) if depth <= self.depth else Drafting()
            for depth in range(1, self.policy.most + 1)
        )
