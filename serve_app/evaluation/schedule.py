"""In which order cases are asked, and who is asked first."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """One case, asked of both targets one after the other. ``number``: of the case in the suite."""

    number: int
    repeat: int
    is_candidate_second: bool


def turns(cases: int, repeats: int, seed: int) -> list[Turn]:
    """Every case ``repeats`` times, in an order that is drawn, so that a run that is stopped has a sample of
    the suite. In half of the turns the candidate is second; which ones is drawn, because the test of times
    rests on that draw (``statistics.py``)."""
    draw = random.Random(seed)
    count = cases * repeats
    second = [place % 2 == 0 for place in range(count)]
    draw.shuffle(second)
    order = [(number, repeat) for repeat in range(repeats) for number in draw.sample(range(cases), cases)]
    return [Turn(number, repeat, later) for (number, repeat), later in zip(order, second, strict=True)]
