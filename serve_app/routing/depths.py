"""At which depths the prefixes of a prompt are named for other gateways: every block at first, then 16 in
each doubling.

A prompt of any length has few names that way (64 blocks: 48, 1,024 blocks: 112), and what two prompts share
is underestimated by a sixteenth at most.
"""

from __future__ import annotations

from collections.abc import Iterator

EACH_BLOCK = 32
"""Up to this depth, in blocks, each one is named. A multiple of ``IN_A_DOUBLING``."""

IN_A_DOUBLING = 16


def depth(names: int) -> int:
    """How many blocks the first ``names`` names of a prompt cover."""
    if names <= EACH_BLOCK:
        return names
    doublings, step = divmod(names - EACH_BLOCK, IN_A_DOUBLING)
    return (EACH_BLOCK << doublings) + step * (EACH_BLOCK // IN_A_DOUBLING << doublings)


def depths(blocks: int) -> Iterator[int]:
    """The depths at which a prompt of so many blocks has names, in blocks."""
    names = 1
    while (at := depth(names)) <= blocks:
        yield at
        names += 1


def names_within(blocks: int) -> int:
    """How many names lie within so many blocks."""
    if blocks <= EACH_BLOCK:
        return max(0, blocks)
    doublings = (blocks // EACH_BLOCK).bit_length() - 1
    step = (blocks - (EACH_BLOCK << doublings)) // (EACH_BLOCK // IN_A_DOUBLING << doublings)
    return EACH_BLOCK + IN_A_DOUBLING * doublings + step
