"""What gateways tell one another of the prompts that they have sent: names of prefixes, and to which member.

Each gateway so knows what members have cached, whichever gateway sent it there."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from serve_app.routing.prompt import NAME_BYTES

MOST_NAMES = 8192
"""In one round, 64 KiB: prompts of a million tokens that are all different. What is beyond is not told."""

KEPT_ROUNDS = 3
"""Gateways ask once a round, each at its own time: one that was late twice misses nothing."""


class SentPrompt(msgspec.Struct, frozen=True, array_like=True):
    """``names``: those of the prompt's prefixes, shortest first, one behind the other."""

    model: str
    member: str
    names: bytes

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        starts = range(0, len(self.names), NAME_BYTES)
        return tuple([self.names[start : start + NAME_BYTES] for start in starts])


Round = tuple[int, bytes]
"""The number of a gateway's round, and its prompts, encoded once for all who ask."""


def prompts_of(told: Round) -> list[SentPrompt]:
    """The prompts of a round. Raises: msgspec.MsgspecError: another version has encoded them."""
    return msgspec.msgpack.decode(told[1], type=list[SentPrompt])


class SentPrompts:
    """What this gateway has sent in the round that runs, and in those before. A prompt that is sent again to
    the same member in one round is told once."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str, bytes], SentPrompt] = {}
        self._names = 0
        self._number = 0
        self._rounds: deque[Round] = deque()

    def add(self, model: str, member: str, prefixes: Sequence[bytes]) -> None:
        """``prefixes``: one or more."""
        key = model, member, prefixes[-1]
        if key in self._sent or self._names + len(prefixes) > MOST_NAMES:
            return
        self._sent[key] = SentPrompt(model, member, b"".join(prefixes))
        self._names += len(prefixes)

    def close_round(self) -> tuple[Round, ...]:
        """The newest rounds, this one included, without those that are empty."""
        self._number += 1
        if self._sent:
            self._rounds.append((self._number, msgspec.msgpack.encode(list(self._sent.values()))))
        self._sent, self._names = {}, 0
        while self._rounds and self._rounds[0][0] <= self._number - KEPT_ROUNDS:
            self._rounds.popleft()
        return tuple(self._rounds)
