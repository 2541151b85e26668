"""What a request asks of a member, as far as limits count it."""

from __future__ import annotations

from dataclasses import dataclass

from serve_app.openai.usage import TokenCounts
from serve_app.quotas.cost import most_used
from serve_app.quotas.limits import MOST


@dataclass(slots=True)
class Order:
    """What is asked of a member. ``model`` is the model's own name, ``priced`` the one that has its price;
    ``prompt`` and ``output`` are tokens, estimated or as the request says; ``output`` ``None``: as many as
    the model will. ``weight``: so many answers. ``streams``: they come in events. ``hides``: some of what is
    generated makes no event. ``size``: bytes that members read. ``is_free``: what they do not count costs
    nothing. ``is_implied``: the request leaves ``output`` to the member. ``longest``: the most that every
    member can be told of the length of an answer; ``told``: what they are told, in tokens."""

    model: str
    priced: str
    prompt: float
    output: int | None
    weight: int = 1
    generates: bool = True
    streams: bool = True
    hides: bool = False
    size: int = 0
    is_free: bool = False
    is_implied: bool = False
    longest: int = 0
    told: int | None = None

    @property
    def is_open(self) -> bool:
        """It generates, and says no limit."""
        return self.generates and self.output is None

    @property
    def is_seen(self) -> bool:
        """How long its answers become is seen while they are made."""
        return self.streams and not self.hides

    @property
    def at_most(self) -> int:
        """Tokens of all answers, as members were told; far more than any has where they were not."""
        return MOST if self.told is None else self.told * self.weight

    def credible(self, counts: TokenCounts) -> TokenCounts:
        """What a member says, as far as the request can have used it."""
        most = most_used(self.size, self.output, self.weight)
        prompt = None if counts.prompt is None else min(counts.prompt, most.prompt)
        output = None if counts.output is None else min(counts.output, most.output)
        return counts if (prompt, output) == (counts.prompt, counts.output) else TokenCounts(prompt, output)
