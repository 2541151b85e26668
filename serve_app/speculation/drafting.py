"""What drafts of one depth gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drafting:
    """Decode steps of single requests at one depth. Floats, because old steps fade.

    ``drafted``: tokens drafted in them (none in a step that had no draft); ``accepted``: those that held.
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
"""By depth: the first is that of one token."""


def nothing(deepest: int) -> Depths:
    return (Drafting(),) * deepest


def added(some: Depths, others: Depths) -> Depths:
    """Of the same depths."""
    return tuple(one + other for one, other in zip(some, others, strict=True))


def at_depth(depth: int, drafts: Mapping[tuple[int, int], int], without: float = 0.0) -> Drafting:
    """What drafts give when they are cut to ``depth``. ``drafts`` are counted by their tokens and those of
    them that hold; ``without``: steps that had none."""
    return Drafting(
        without + sum(drafts.values()),
        sum(count * min(drafted, depth) for (drafted, _), count in drafts.items()),
        sum(count * min(accepted, depth) for (_, accepted), count in drafts.items()),
    )
