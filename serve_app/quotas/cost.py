"""What a request costs of each bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.quotas.limits import AT_GATE, MONEY, NANO, Bound

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens."""

    input: float = 0.0
    output: float = 0.0


FREE = Price()


@dataclass(frozen=True, slots=True)
class Use:
    """Tokens of a prompt and of its answers."""

    prompt: int
    output: int

    def at_rate(self, rate: float) -> Use:
        """A part of it, of an answer that no member gave."""
        return Use(round(self.prompt * rate), round(self.output * rate))

    def of(self, bound: Bound, price: Price) -> int:
        """In units of the bound."""
        if bound in AT_GATE:
            return 1
        if bound in MONEY:
            return round((self.prompt * price.input + self.output * price.output) * NANO / MILLION)
        return self.prompt + self.output


def shares(reserved: Sequence[int], used: int) -> list[int]:
    """What each of several reservations of one limit is settled with: as much as it holds, and the last one
    with all the rest. Together they are ``used``."""
    parts = []
    for amount in reserved[:-1]:
        parts.append(min(used, amount))
        used -= parts[-1]
    return [*parts, used] if reserved else []
