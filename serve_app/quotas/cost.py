"""What a request costs of each bound: itself, its tokens or their price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from serve_app.quotas.limits import AT_GATE, MONEY, MOST, NANO, Bound

MILLION = 1_000_000


class Price(Protocol):
    """The price of a million tokens."""

    @property
    def input(self) -> float: ...

    @property
    def output(self) -> float: ...


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


def left_early(reserved: Use, seconds: float, pace: float | None, *, streams: bool) -> Use:
    """An estimate of what a member did for a client that left before anything was counted: all of the prompt,
    and of the answer what ``pace``, in tokens per second, makes in the ``seconds`` since it was asked, and
    at most what was reserved. Without a known pace it is all of that. A stream of which no event had come had
    generated nothing."""
    if streams:
        return Use(reserved.prompt, 0)
    if pace is None:
        return reserved
    return Use(reserved.prompt, min(reserved.output, math.ceil(pace * seconds)))


def room_for_answer(prompt: int, bound: Bound, price: Price, room: int) -> int:
    """Tokens of an answer that, with a prompt, cost no more than ``room``, in units of the bound."""
    if bound not in MONEY:
        return room - prompt
    left = room * MILLION / NANO - prompt * price.input
    if price.output <= 0:
        return MOST if left >= 0 else 0
    return math.floor(left / price.output)


SPARE = 131_072
"""Tokens of a prompt beyond the bytes of its body: of images and files that it names, of templates; and of an
answer without a limit."""


def most_used(size: int, output: int | None, answers: int) -> Use:
    """What a request can have used at most: a token has a byte of the body (``size``) or more. An ``output``
    that the request names is taken four times: some members count thoughts apart from it. A count beyond is a
    member's mistake; it must not use up a budget."""
    each = SPARE if output is None else 4 * output + 1024
    return Use(size + SPARE, each * max(1, answers))


def shares(reserved: Sequence[int], used: int) -> list[int]:
    """What each of several reservations of one limit is settled with: as much as it holds, and the last one
    with all the rest. Together they are ``used``."""
    parts = []
    for amount in reserved[:-1]:
        parts.append(min(used, amount))
        used -= parts[-1]
    return [*parts, used] if reserved else []
