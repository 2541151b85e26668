"""Estimates which prefixes of prompts each member has cached, from the prompts last sent to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from serve_app.routing.depths import depth, names_within
from serve_app.routing.prompt import TOKENS_PER_BLOCK

DEFAULT_CACHE_TOKENS = 262_144
"""Cache size of a member that does not report it: about what an 80 GB GPU holds in addition to an 8B model
with 16-bit weights."""

MOST_CACHE_TOKENS = 4_194_304
"""Upper limit for the size that a member reports: 32,768 blocks, a few MB of this process's memory."""


def blocks_in_cache(cache_tokens: int) -> int:
    """How many blocks to remember for a member with a cache of that size (0: not known)."""
    tokens = min(cache_tokens or DEFAULT_CACHE_TOKENS, MOST_CACHE_TOKENS)
    return max(1, int(tokens / TOKENS_PER_BLOCK))


Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Scale:
    """How names of prefixes and blocks correspond: ``depth`` blocks of so many names, and the other way."""

    depth: Callable[[int], int]
    within: Callable[[int], int]


EACH = Scale(lambda names: names, lambda blocks: blocks)
"""A name for each block (``blocks_of``)."""

TOLD = Scale(depth, names_within)
"""The names that gateways tell one another (``prefixes_of``)."""


class PrefixIndex(Generic[Name]):
    """Prefixes by member, least recently used first, and the reverse: members by prefix.

    A set of members is a bit mask, so that one walk along a prompt's prefixes gives the result for all of
    them. A prefix counts as the blocks by which it is longer than the one named before it.
    """

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._held: dict[str, OrderedDict[Name, int]] = {}
        self._sizes: dict[str, int] = {}
        self._bits: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._holders: dict[Name, int] = {}

    def __len__(self) -> int:
        """Blocks remembered, over all members."""
        return sum(self._sizes.values())

    @property
    def names(self) -> Collection[str]:
        return self._held.keys()

    def cached_tokens(self, prefixes: Sequence[Name]) -> dict[str, float]:
        """How many tokens of the prompt each member holds; members with none are left out."""
        found: dict[str, float] = {}
        holding = self._holders.get(prefixes[0], 0) if prefixes else 0
        known = 1
        while holding:
            still = holding & self._holders.get(prefixes[known], 0) if known < len(prefixes) else 0
            self._note(holding ^ still, self._scale.depth(known) * TOKENS_PER_BLOCK, found)
            holding = still
            known += 1
        return found

    def _note(self, members: int, tokens: float, found: dict[str, float]) -> None:
        while members:
            bit = members & -members
            found[self._names[bit]] = tokens
            members ^= bit

    def record(self, name: str, prefixes: Sequence[Name], most_blocks: int) -> None:
        """A prompt with these prefixes was sent to the member, which holds ``most_blocks`` at most.

        The longest is touched first, so that a prompt is evicted from its end, as vLLM does: without its
        beginning the rest is useless.
        """
        held = self._held.get(name)
        if held is None:
            held = self._add(name)
        bit, holders, depth = self._bits[name], self._holders, self._scale.depth
        for number in range(min(len(prefixes), self._scale.within(most_blocks)), 0, -1):
            prefix = prefixes[number - 1]
            if prefix in held:
                held.move_to_end(prefix)
            else:
                held[prefix] = blocks = depth(number) - depth(number - 1)
                self._sizes[name] += blocks
                holders[prefix] = holders.get(prefix, 0) | bit
        while self._sizes[name] > most_blocks:
            oldest, blocks = held.popitem(last=False)
            self._sizes[name] -= blocks
            self._drop(oldest, bit)

    def _add(self, name: str) -> OrderedDict[Name, int]:
        bit = 1
        while bit in self._names:
            bit <<= 1
        self._bits[name], self._names[bit] = bit, name
        self._sizes[name] = 0
        return self._held.setdefault(name, OrderedDict())

    def forget(self, name: str) -> None:
        """The member is gone, and its cache with it."""
        if name not in self._held:
            return
        bit = self._bits.pop(name)
        del self._names[bit], self._sizes[name]
        for prefix in self._held.pop(name):
            self._drop(prefix, bit)

    def _drop(self, prefix: Name, bit: int) -> None:
        left = self._holders[prefix] & ~bit
        if left:
            self._holders[prefix] = left
        else:
            del self._holders[prefix]
