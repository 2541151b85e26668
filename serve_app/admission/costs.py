"""What requests cost in tokens: known of a prompt when it is sent, of an answer at its end."""

from __future__ import annotations

from dataclasses import dataclass

OUTPUT_COST = 2.0
"""What a token of an answer costs, in tokens of a prompt: the paper's weights, from the prices of vendors."""

SLOT_COST_PER_S = 20.0
"""What a slot costs in a second, at least: a request that makes few tokens keeps others out, too. A slot in
which an engine writes an answer costs several times as much."""

CREDIT_REQUESTS = 8.0
"""The credit of a tenant that comes, in requests of the usual cost."""

LEARNING = 0.1
"""The part of a new request in the means of costs and of lengths of answers."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What became of a request: tokens of its prompt and of all its answers (``None``: not known), and how
    many seconds it held its slots, all together."""

    prompt_tokens: float = 0.0
    output_tokens: float | None = None
    slot_s: float = 0.0

    @property
    def cost(self) -> float:
        return max(
            self.prompt_tokens + OUTPUT_COST * (self.output_tokens or 0.0), SLOT_COST_PER_S * self.slot_s
        )


NOTHING = Spent()
"""Cost of a request that reached no member."""


def mean(known: float | None, new: float) -> float:
    """The mean of what was seen, in which the newest count most."""
    return new if known is None else known + LEARNING * (new - known)


class Costs:
    """What a model's requests usually cost."""

    def __init__(self) -> None:
        self._usual: float | None = None
        self._output: float | None = None

    @property
    def credit(self) -> float:
        """How far a tenant that comes may be behind the others."""
        return CREDIT_REQUESTS * (self._usual or 0.0)

    def expected(self, prompt_tokens: float, slots: int, output: float | None) -> float:
        """Cost of a request that is sent now. ``output``: the tokens of its tenant's usual answer."""
        each = self._output if output is None else output
        cost = max(float(slots), Spent(prompt_tokens, slots * (each or 0.0)).cost)
        self._usual = mean(self._usual, cost)
        return cost

    def saw(self, output: float) -> None:
        """An answer had so many tokens."""
        self._output = mean(self._output, output)
