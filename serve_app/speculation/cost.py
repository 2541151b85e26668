"""The cost of a decode step with drafts, and how it is learned from the steps' durations."""

from __future__ import annotations

from dataclasses import dataclass

GPU_KNEE_TOKENS = 256.0
"""Tokens per step at which computing takes as long as reading the weights: FLOP/s over bytes/s for 16-bit
weights (2 FLOP for 2 bytes): H100 SXM 989e12 / 3.35e12 = 295, A100 312e12 / 2.0e12 = 156."""

FADE = 0.99
"""Factor on a step's weight with each newer step: about the last hundred steps count."""

ENOUGH_STEPS = 24.0
LEAST_SPREAD = 0.1
"""Least variance of the tokens per step from which a slope can be fitted. One request with a token drafted in
every second step has 0.25."""


OUTLIER = 3.0
"""A step longer than this many times the mean (scaled up by its tokens if it has more than the mean) waited
for something else; its duration is cut to that bound."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of a step in units of a plain decode step of the same batch.

    ``draft``: time to draft one token for the whole batch (0 for n-grams; c in Leviathan et al.).
    ``knee_tokens``: a step of n tokens takes 1 + n / knee times as long as reading the weights. This is how
    load enters: with many requests, each additional token to verify costs its full share.
    """

    draft: float = 0.0
    knee_tokens: float = GPU_KNEE_TOKENS

    def of(self, drafted: float, batch: float) -> float:
        """``drafted``: drafted tokens per request, on average; ``batch``: requests that decode."""
        plain = 1.0 + batch / self.knee_tokens
        checked = 1.0 + batch * (1.0 + drafted) / self.knee_tokens
        return checked / plain + drafted * self.draft

    def speed_up(self, drafted: float, accepted: float, batch: float) -> float:
        """Speed-up over steps without drafts when ``accepted`` of a request's ``drafted`` tokens are kept."""
        return (1.0 + accepted) / self.of(drafted, batch)


@dataclass(slots=True)
class StepTimes:
    """Fits a line to the durations of decode steps over their tokens (least squares; old steps fade). While
    all steps have nearly the same number of tokens, the earlier result stays."""

    _weight: float = 0.0
    _tokens: float = 0.0
    _seconds: float = 0.0
    _tokens_2: float = 0.0
    _product: float = 0.0
    _knee: float | None = None

    def observe(self, tokens: int, seconds: float) -> None:
        """Add a step that only decoded; ``tokens`` counts all tokens computed in it, drafts included."""
        if self._weight >= ENOUGH_STEPS:
            longer = max(1.0, tokens * self._weight / self._tokens)
            seconds = min(seconds, OUTLIER * longer * self._seconds / self._weight)
        self._weight = FADE * self._weight + 1.0
        self._tokens = FADE * self._tokens + tokens
        self._seconds = FADE * self._seconds + seconds
        self._tokens_2 = FADE * self._tokens_2 + tokens * tokens
        self._product = FADE * self._product + tokens * seconds
        self._knee = self._read() or self._knee

    @property
    def knee_tokens(self) -> float | None:
        """See :class:`StepCost`; ``None`` while the steps are too few or too alike."""
        return self._knee

    def _read(self) -> float | None:
        if self._weight < ENOUGH_STEPS:
            return None
        mean = self._tokens / self._weight
        spread = self._tokens_2 / self._weight - mean * mean
        if spread < LEAST_SPREAD:
            return None
        together = self._product / self._weight - mean * self._seconds / self._weight
        slope = together / spread
        fixed = self._seconds / self._weight - slope * mean
        if slope <= 0:
            return GPU_KNEE_TOKENS
        return max(fixed / slope, 1.0)
