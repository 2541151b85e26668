"""The prefix cache: which blocks of tokens need no prefill."""

from __future__ import annotations

from array import array
from collections import OrderedDict

BLOCK = 16
"""Tokens in one block of the prefix cache."""


class PrefixCache:
    """The blocks of tokens in memory. The key of a block covers all tokens before it as well."""

    def __init__(self, tokens: int) -> None:
        self._room = tokens // BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, ids: list[int], salt: str = "") -> int:
        """How many tokens of a prompt are cached; the last token is always computed."""
        count = 0
        for key in self._keys(ids[:-1], salt):
            if key not in self._blocks:
                break
            count += BLOCK
        return count

    def keep(self, ids: list[int], salt: str = "") -> None:
        # In this order the end of a prompt is evicted before the beginning that it needs.
        for key in reversed(self._keys(ids, salt)):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)

    @staticmethod
    def _keys(ids: list[int], salt: str) -> list[int]:
        data = array("I", ids)
        keys, key = [], hash(salt)
        for start in range(0, len(data) - BLOCK + 1, BLOCK):
            key = hash((key, data[start : start + BLOCK].tobytes()))
            keys.append(key)
        return keys
