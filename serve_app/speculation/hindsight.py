"""How good drafts were, verified or not: this shows as soon as the model has generated the tokens itself.

At depth d, a step takes the draft for the end of the text, accepts the correct prefix of its first d tokens,
adds one token of the model, and the next step begins behind that. This module replays these steps over each
text for every depth at once. So whatever depth is in use, even 0, shows what all depths would give.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.speculation.drafting import Depths, Drafting


@dataclass(slots=True)
class _Walk:
    """One request. ``steps``: by depth, the position in the text where the next step begins. ``offers``:
    drafts whose tokens are not all known yet, with the position of their first token."""

    steps: list[int]
    offers: deque[tuple[int, Sequence[int]]] = field(default_factory=deque)
    is_new: bool = True
    """A draft was offered since the counts were last taken."""


class Hindsight:
    """Counts for depths up to ``deepest``. Requests are identified by name."""

    def __init__(self, deepest: int) -> None:
        self._deepest = deepest
        self._walks: dict[str, _Walk] = {}
        self._found = self._zeros()

    def offered(self, request: str, tokens: Sequence[int], draft: Sequence[int]) -> None:
        """``draft`` (may be empty) continues ``tokens``, the prompt and the answer so far."""
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
                return  # correct so far, and the following tokens are not known yet
            walk.offers.popleft()
            self._walk_on(walk, start, len(first), held)

    def take(self) -> Depths:
        """The counts since the last call. Requests without a draft since then are forgotten."""
        found, self._found = self._found, self._zeros()
        self._walks = {name: walk for name, walk in self._walks.items() if walk.is_new}
        for walk in self._walks.values():
            walk.is_new = False
        return tuple(Drafting(*counts) for counts in found)

    def _walk_on(self, walk: _Walk, start: int, drafted: int, held: int) -> None:
        """Replay every depth's steps from the draft at ``start`` up to the next draft.

        An engine that accepts several tokens at once is offered no draft in between. There the correct rest
        of this draft is used as the draft.
        """
        following = walk.offers[0][0]
        for number, begin in enumerate(walk.steps):
            position = max(begin, start)
            while position == start or position < min(following, start + held):
                gone = position - start
                counts, accepted = self._found[number], min(held - gone, number + 1)
                counts[0] += 1
                counts[1] += min(drafted - gone, number + 1)
                counts[2] += accepted
                position += accepted + 1
            walk.steps[number] = position

    def _zeros(self) -> list[list[float]]:
        """Steps, drafted and accepted tokens by depth."""
        return [[0.0, 0.0, 0.0] for _ in range(self._deepest)]


def _held(draft: Sequence[int], tokens: Sequence[int], start: int) -> int:
    """How many of the draft's first tokens equal the text from ``start`` on, as far as the text goes."""
    known = min(len(draft), len(tokens) - start)
    for number in range(known):
        if tokens[start + number] != draft[number]:
            return number
    return known
