"""Estimates which blocks of prompt text each member has cached, from the prompts last sent to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

from serve_app.routing.prompt import TOKENS_PER_BLOCK

DEFAULT_CACHE_TOKENS = 262_144
"""Cache size of a member that does not report it: about what an 80 GB GPU holds in addition to an 8B model
with 16-bit weights."""

MOST_CACHE_TOKENS = 4_194_304
"""Upper limit for the size that a member reports: 32,768 blocks, about 6 MB of this process's memory."""


def blocks_in_cache(cache_tokens: int) -> int:
    """How many blocks to remember for a member with a cache of that size (0: not known)."""
    tokens = min(cache_tokens or DEFAULT_CACHE_TOKENS, MOST_CACHE_TOKENS)
    return max(1, int(tokens / TOKENS_PER_BLOCK))


class PrefixIndex:
    """Blocks by member, least recently used first, and the reverse: members by block.

    A set of members is a bit mask, so that one walk along a prompt's chain gives the result for all of them.
    Blocks are chained hashes: one is useful only to a member that also holds those before it.
    """

    def __init__(self) -> None:
        self._held: dict[str, OrderedDict[int, None]] = {}
        self._bits: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._holders: dict[int, int] = {}

    def __len__(self) -> int:
        """Blocks remembered, over all members."""
        return sum(len(held) for held in self._held.values())

    @property
    def names(self) -> Collection[str]:
        return self._held.keys()

    def cached_tokens(self, blocks: Sequence[int]) -> dict[str, float]:
        """How many tokens of the prompt's prefix each member holds; members with none are left out."""
        found: dict[str, float] = {}
        holding = self._holders.get(blocks[0], 0) if blocks else 0
        depth = 1
        while holding:
            still = holding & self._holders.get(blocks[depth], 0) if depth < len(blocks) else 0
            self._note(holding ^ still, depth * TOKENS_PER_BLOCK, found)
            holding = still
            depth += 1
        return found

    def _note(self, members: int, tokens: float, found: dict[str, float]) -> None:
        while members:
            bit = members & -members
            found[self._names[bit]] = tokens
            members ^= bit

    def record(self, name: str, blocks: Sequence[int], most_blocks: int) -> None:
        """A prompt of ``blocks`` was sent to the member, which holds ``most_blocks`` at most.

        The last block is touched first, so that a chain is evicted from its end, as vLLM does: without its
        beginning the rest is useless.
        """
        held = self._held.get(name)
        if held is None:
            held = self._add(name)
        bit, holders = self._bits[name], self._holders
        for block in reversed(blocks[:most_blocks]):
            if block in held:
                held.move_to_end(block)
            else:
                held[block] = None
                holders[block] = holders.get(block, 0) | bit
        while len(held) > most_blocks:
            self._drop(held.popitem(last=False)[0], bit)

    def _add(self, name: str) -> OrderedDict[int, None]:
        bit = 1
        while bit in self._names:
            bit <<= 1
        self._bits[name], self._names[bit] = bit, name
        return self._held.setdefault(name, OrderedDict())

    def forget(self, name: str) -> None:
        """The member is gone, and its cache with it."""
        if name not in self._held:
            return
        bit = self._bits.pop(name)
        del self._names[bit]
        for block in self._held.pop(name):
            self._drop(block, bit)

    def _drop(self, block: int, bit: int) -> None:
        left = self._holders[block] & ~bit
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]
