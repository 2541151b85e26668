"""What members do for one request: since when, how much, and how it is ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deployments.gateway.request.order import Order
from serve_app.errors import BudgetEnded
from serve_app.openai.usage import NO_TOKENS, AnswerEnd, TokenCounts
from serve_app.quotas.cost import Use, left_early, most_used
from serve_app.quotas.lengths import FIRST_PACE, Lengths
from serve_app.request.timing import Timeline

Cut = Callable[[BudgetEnded], None]

GoesOn = Callable[[Callable[[], object]], bool]
"""Whether others still wait for the same generation; what it is given is called when that ends."""


class Answers:
    """Of all members that have answered one request."""

    def __init__(self) -> None:
        self._ends: list[tuple[AnswerEnd, bool]] = []

    @property
    def have_begun(self) -> bool:
        return bool(self._ends)

    def add(self, end: AnswerEnd, *, is_stream: bool) -> None:
        self._ends.append((end, is_stream))

    def pieces(self) -> int:
        """Events of all streams, so far."""
        return sum(end.pieces for end, is_stream in self._ends if is_stream)

    def size(self) -> int:
        """In bytes."""
        return sum(end.size for end, _ in self._ends)

    def tokens(self, per_piece: float | None) -> TokenCounts:
        """So far; nothing is known without an answer. ``per_piece``: of an event of a stream; ``None``: its
        events say nothing."""
        counts = [
            end.tokens(is_stream and per_piece is not None, per_piece or 0.0) for end, is_stream in self._ends
        ]
        if not counts:
            return NO_TOKENS
        prompt = next((each.prompt for each in counts if each.prompt is not None), None)
        outputs = [each.output for each in counts if each.output is not None]
        return TokenCounts(prompt, sum(outputs) if outputs else None)


class AtMembers:
    """What members do for one request: ``cut`` ends their answer, ``goes_on`` is that of a generation which
    others may join, and which may then outlast this client."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._asked_ns = 0
        self.answers = Answers()
        self.cut: Cut | None = None
        self.was_cut = False
        self.goes_on: GoesOn | None = None
        self.has_joined = False

    def joined(self) -> None:
        """The request gets an answer that another request asked for, whatever it has reserved."""
        self.has_joined, self.goes_on, self._asked_ns = True, None, 0

    def of(self, order: Order | None) -> Order | None:
        """What members do for the request itself."""
        return None if self.has_joined else order

    def own(self, goes_on: GoesOn) -> None:
        """It has lost that one, and asks a member itself."""
        self.has_joined, self.goes_on = False, goes_on

    def asked(self) -> None:
        """One is asked now: from here on it works."""
        self._asked_ns = self._asked_ns or self._timeline.clock()

    def unanswered(self) -> None:
        """It did not answer, through no fault of the client's."""
        self._asked_ns = 0

    def began(self, cut: Cut, end: AnswerEnd, *, is_stream: bool) -> None:
        """One answers: ``cut`` ends its answer, ``end`` knows how far it is."""
        self.cut = cut
        self.answers.add(end, is_stream=is_stream)

    def made(self, counted: TokenCounts, order: Order | None, lengths: Lengths) -> int:
        """Tokens so far. Those of a whole answer are seen only at its end, and thoughts that are not sent are
        not seen: until then as many as it can have by now."""
        if counted.output is not None or order is None or order.is_seen:
            return counted.output or 0
        has_ended = self.answers.have_begun and not order.streams
        if self.has_joined or has_ended or not self._asked_ns:
            return 0
        pace = lengths.pace(order.model) or FIRST_PACE
        most = most_used(order.size, order.output, order.weight).output
        return min(most, math.ceil(pace * order.weight * self._asked_for_s()))

    def _asked_for_s(self) -> float:
        """Since when members work."""
        return (self._timeline.clock() - self._asked_ns) / 1e9

    def guess(self, order: Order, reserved: Use, counts: TokenCounts, lengths: Lengths) -> TokenCounts | None:
        """Estimated tokens for a client that left; ``None``: the answer was counted, or no member was
        asked."""
        if not self._asked_ns or counts.output is not None:
            return None
        pace = lengths.pace(order.model)
        of_all = None if pace is None else pace * order.weight
        use = left_early(reserved, self._asked_for_s(), of_all, streams=order.is_seen)
        return TokenCounts(use.prompt if counts.prompt is None else counts.prompt, use.output)


@contextmanager
def awaited(members: AtMembers) -> Iterator[None]:
    """A whole answer is awaited: until it is here, ``cut`` ends that. Raises: BudgetEnded: it has."""
    task = asyncio.current_task()
    assert task is not None, "members are asked in a task"
    before, said = task.cancelling(), list[BudgetEnded]()

    def cut(error: BudgetEnded) -> None:
        said.append(error)
        task.cancel()

    members.cut = cut
    try:
        yield
    except asyncio.CancelledError:
        if said and task.uncancel() <= before:
            members.was_cut = True
            raise said[0] from None
        raise
    finally:
        if members.cut is cut:
            members.cut = None
