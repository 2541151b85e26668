"""How many drafted tokens were accepted at one depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drafting:
    """Decode steps of single requests at one depth. The counts are floats, because old steps fade.

    ``drafted``: tokens drafted in these steps (0 for a step without a draft); ``accepted``: those that the
    model confirmed.
    """

    steps: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0

    def __add__(self, other: Drafting) -> Drafting:
        return Drafting(
            self.steps + other.steps, self.drafted + other.drafted, self.accepted + other.accepted
        )

    def faded(self, by: float) -> Drafting:
        return Drafting(self.steps * by, self.drafted * by, self.accepted * by)

    @property
    def drafted_a_step(self) -> float:
        return self.drafted / self.steps if self.steps else 0.0

    @property
    def accepted_a_step(self) -> float:
        return self.accepted / self.steps if self.steps else 0.0


Depths = tuple[Drafting, ...]
"""Drafting by depth; the first entry is depth 1."""


def nothing(deepest: int) -> Depths:
    return (Drafting(),) * deepest


def added(some: Depths, others: Depths) -> Depths:
    """The sums, depth by depth."""
    return tuple(one + other for one, other in zip(some, others, strict=True))


def at_depth(depth: int, drafts: Mapping[tuple[int, int], int], without: float = 0.0) -> Drafting:
    """The result of drafts cut to ``depth``. ``drafts`` counts drafts by (drafted, accepted) tokens;
    ``without`` is the number of steps without a draft."""
    return Drafting(
        without + sum(drafts.values()),
        sum(count * min(drafted, depth) for (drafted, _), count in drafts.items()),
        sum(count * min(accepted, depth) for (_, accepted), count in drafts.items()),
    )
