"""What drafts were worth, checked or not: it shows as soon as the model has said those tokens.

At depth d a step takes the draft for where the text ends, keeps what holds of its first d tokens, adds one of
the model's own, and the next step begins behind it. That walk is done here over each text for every depth at
once, so that whatever depth is in use, none too, shows what all of them would give.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.speculation.drafting import Depths, Drafting


@dataclass(slots=True)
class _Walk:
    """One request. ``steps``: by depth, where in the text the next step begins. ``offers``: drafts whose
    tokens are not all known yet, with the place of their first token."""

    steps: list[int]
    offers: deque[tuple[int, Sequence[int]]] = field(default_factory=deque)
    is_new: bool = True
    """It was heard of since the counts were last taken."""


class Hindsight:
    """Counts up to a depth of ``deepest``; requests are told apart by name."""

    def __init__(self, deepest: int) -> None:
        self._deepest = deepest
        self._walks: dict[str, _Walk] = {}
        self._found = self._zeros()

    def offered(self, request: str, tokens: Sequence[int], draft: Sequence[int]) -> None:
        """``draft`` (which may be empty) is for what follows ``tokens``, prompt and answer so far."""
        walk = self._walks.get(request)
        if walk is None:
            walk = self._walks[request] = _Walk([0] * self._deepest)
        walk.is_new = True
        end = len(tokens)
        walk.offers.append((end, draft[: self._deepest]))
        while len(walk.offers) > 1:
            start, first = walk.offers[0]
            held = _held(first, tokens, start)
            if held == end - start < len(first):
                return  # right so far, and what follows is not known yet
            walk.offers.popleft()
            self._walk_on(walk, start, len(first), held)

    def take(self) -> Depths:
        """What was found since the last call. Requests that were not heard of since then are forgotten."""
        found, self._found = self._found, self._zeros()
        self._walks = {name: walk for name, walk in self._walks.items() if walk.is_new}
        for walk in self._walks.values():
            walk.is_new = False
        return tuple(Drafting(*counts) for counts in found)

    def _walk_on(self, walk: _Walk, start: int, drafted: int, held: int) -> None:
        """Every depth's steps from the draft at ``start`` up to the next one.

        An engine that keeps several tokens at once is offered no draft in between. There the rest of this
        one, as far as it held, stands for what would have been drafted.
        """
        following = walk.offers[0][0]
        for number, begin in enumerate(walk.steps):
            place = max(begin, start)
            while place == start or place < min(following, start + held):
                gone = place - start
                counts, accepted = self._found[number], min(held - gone, number + 1)
                counts[0] += 1
                counts[1] += min(drafted - gone, number + 1)
                counts[2] += accepted
                place += accepted + 1
            walk.steps[number] = place

    def _zeros(self) -> list[list[float]]:
        """Steps, drafted and accepted tokens, by depth."""
        return [[0.0, 0.0, 0.0] for _ in range(self._deepest)]


def _held(draft: Sequence[int], tokens: Sequence[int], start: int) -> int:
    """How many of the draft's first tokens are those of the text from ``start`` on, as far as it goes."""
    known = min(len(draft), len(tokens) - start)
    for number in range(known):
        if tokens[start + number] != draft[number]:
            return number
    return known
