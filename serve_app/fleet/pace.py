"""How fast a member is, learned from its answers: exponentially weighted means."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from serve_app.smoothing import mean

PRIOR_PREFILL_S_PER_TOKEN = 1e-4
"""10,000 prompt tokens a second, an 8B model on one recent GPU; only until the first answer is seen."""

PRIOR_SERVICE_S = 5.0
"""A typical chat answer: some hundred tokens at 20 ms; only until the first answer is seen."""

RECOVERY_S = 10.0
"""Time constant of an idle member's recovery: after seven idle seconds it seems half as slow. One that is
well again is noticed within a minute; one that stays slow is tried only a few times a minute."""

LEAST_TOKENS = 64.0
"""A first byte counts as at least this much prompt: a fully cached prompt still costs one step, which must
not be taken for the cost of a single token."""


@dataclass(slots=True)
class Pace:
    """``prefill_s_per_token``: time to first byte per prompt token ahead; ``service_s``: how long a request
    runs; ``prompt_tokens``: mean uncached prompt tokens of a request."""

    prefill_s_per_token: float = PRIOR_PREFILL_S_PER_TOKEN
    service_s: float = PRIOR_SERVICE_S
    prompt_tokens: float = LEAST_TOKENS
    first_bytes: int = 0
    ends: int = 0
    _elapsed_s: float = 0.0
    _tokens_ahead: float = 0.0

    @classmethod
    def typical_of(cls, known: Collection[Pace]) -> Self:
        """Where a new member starts: the mean of its siblings that have answered, else the priors."""
        learned = [pace for pace in known if pace.first_bytes]
        if not learned:
            return cls()
        return cls(
            fmean(pace.prefill_s_per_token for pace in learned),
            fmean(pace.service_s for pace in learned),
            fmean(pace.prompt_tokens for pace in learned),
        )

    def saw_first_byte(self, elapsed_s: float, tokens_ahead: float, tokens: float) -> None:
        """The first byte for a prompt of ``tokens`` arrived ``elapsed_s`` after sending; ``tokens_ahead`` is
        all the prompt that had to be prefilled until then, its own included.

        The pace is a ratio of means, not a mean of ratios: a short prompt, whose time is all overhead, then
        weighs only as much as its length.
        """
        self._elapsed_s = mean(self._elapsed_s, elapsed_s, self.first_bytes)
        self._tokens_ahead = mean(self._tokens_ahead, max(LEAST_TOKENS, tokens_ahead), self.first_bytes)
        self.prefill_s_per_token = self._elapsed_s / self._tokens_ahead
        self.prompt_tokens = mean(self.prompt_tokens, tokens, self.first_bytes)
        self.first_bytes += 1

    def recover(self, fastest: float, elapsed_s: float) -> None:
        """Nothing was sent to this member for a while. What made it slow may be over, which would stay
        unknown if no request ever went there, so its prefill pace drifts to the ``fastest`` of its
        siblings."""
        if self.prefill_s_per_token > fastest:
            share = min(1.0, elapsed_s / RECOVERY_S)
            self.prefill_s_per_token += share * (fastest - self.prefill_s_per_token)
            self._elapsed_s = self.prefill_s_per_token * self._tokens_ahead

    def saw_end(self, elapsed_s: float) -> None:
        """A request ended after it had run for ``elapsed_s``."""
        self.service_s = mean(self.service_s, elapsed_s, self.ends)
        self.ends += 1
