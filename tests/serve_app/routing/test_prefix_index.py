"""The index remembers who was sent what, within its bound, and forgets the end of a prompt first."""

from __future__ import annotations

import random

from serve_app.routing.prefix_index import (
    DEFAULT_CACHE_TOKENS,
    EACH,
    MOST_CACHE_TOKENS,
    TOLD,
    PrefixIndex,
    blocks_in_cache,
)
from serve_app.routing.prompt import TOKENS_PER_BLOCK


def names(*numbers: int) -> list[bytes]:
    return [number.to_bytes(8) for number in numbers]


def tokens(blocks: int) -> float:
    return blocks * TOKENS_PER_BLOCK


def check_integrity(index: PrefixIndex[bytes]) -> None:
    """Both directions of the index agree."""
    inverted: dict[bytes, int] = {}
    for name, held in index._held.items():
        assert sum(held.values()) == index._sizes[name]
        for prefix in held:
            inverted[prefix] = inverted.get(prefix, 0) | index._bits[name]
    assert inverted == index._holders
    assert {bit: name for name, bit in index._bits.items()} == index._names


def test_an_empty_index_knows_nothing() -> None:
    index = PrefixIndex[bytes](EACH)
    assert index.cached_tokens(names(1, 2, 3)) == index.cached_tokens([]) == {}
    assert len(index) == 0


def test_each_member_holds_as_much_as_it_was_sent_from_the_beginning_on() -> None:
    index = PrefixIndex[bytes](EACH)
    index.record("a", names(1, 2, 3, 4), 100)
    index.record("b", names(1, 2, 9), 100)
    assert index.cached_tokens(names(1, 2, 3)) == {"a": tokens(3), "b": tokens(2)}
    assert index.cached_tokens(names(1, 2, 3, 4, 5)) == {"a": tokens(4), "b": tokens(2)}
    assert index.cached_tokens(names(1, 8)) == {"a": tokens(1), "b": tokens(1)}
    assert index.cached_tokens(names(7)) == {}


def test_what_is_held_twice_counts_once() -> None:
    index = PrefixIndex[bytes](EACH)
    for _ in range(3):
        index.record("a", names(1, 2), 100)
    assert len(index) == 2
    check_integrity(index)


def test_the_oldest_prompt_is_forgotten_first_and_from_its_end() -> None:
    index = PrefixIndex[bytes](EACH)
    index.record("a", names(1, 2, 3), 5)
    index.record("a", names(11, 12, 13), 5)
    assert index.cached_tokens(names(1, 2, 3)) == {"a": tokens(2)}
    assert index.cached_tokens(names(11, 12, 13)) == {"a": tokens(3)}


def test_a_prompt_that_is_used_again_is_kept() -> None:
    index = PrefixIndex[bytes](EACH)
    for chain in ((1, 2), (11, 12), (1, 2), (21, 22)):
        index.record("a", names(*chain), 4)
    assert index.cached_tokens(names(1, 2)) == {"a": tokens(2)}
    assert index.cached_tokens(names(11, 12)) == {}


def test_a_prompt_beyond_the_bound_keeps_its_beginning() -> None:
    index = PrefixIndex[bytes](EACH)
    index.record("a", names(*range(100)), 10)
    assert index.cached_tokens(names(*range(100))) == {"a": tokens(10)}
    assert len(index) == 10


def test_a_member_that_is_gone_is_forgotten_and_the_others_are_not() -> None:
    index = PrefixIndex[bytes](EACH)
    index.record("a", names(1, 2, 3), 100)
    index.record("b", names(1, 2), 100)
    index.forget("a")
    index.forget("never seen")
    assert index.cached_tokens(names(1, 2, 3)) == {"b": tokens(2)}
    assert list(index.names) == ["b"]
    index.record("c", names(1), 100)
    assert index.cached_tokens(names(1, 2, 3)) == {"b": tokens(2), "c": tokens(1)}
    check_integrity(index)


def test_no_history_breaks_the_bound_or_the_inverted_side() -> None:
    index, choose = PrefixIndex[bytes](EACH), random.Random(3)
    for step in range(3000):
        name = f"member-{choose.randrange(70)}"
        if choose.random() < 0.02:
            index.forget(name)
        start = choose.randrange(50)
        index.record(name, names(*range(start, start + choose.randrange(40))), 30)
        if step % 100 == 0:
            check_integrity(index)
            assert len(index) <= 30 * len(index.names)
    for name in list(index.names):
        index.forget(name)
    assert len(index) == 0
    check_integrity(index)


def test_the_bound_is_the_members_cache() -> None:
    assert blocks_in_cache(1_000_000) == int(1_000_000 / TOKENS_PER_BLOCK)
    assert blocks_in_cache(0) == blocks_in_cache(DEFAULT_CACHE_TOKENS)
    assert blocks_in_cache(10**12) == blocks_in_cache(MOST_CACHE_TOKENS)
    assert blocks_in_cache(1) == 1


def test_a_smaller_cache_than_before_is_respected_at_once() -> None:
    index = PrefixIndex[bytes](EACH)
    index.record("a", names(*range(50)), 100)
    index.record("a", names(100), 10)
    assert len(index) == 10
    check_integrity(index)


def test_long_prompts_count_as_their_blocks_however_few_names_they_have() -> None:
    index = PrefixIndex[bytes](TOLD)
    long = names(*range(48))  # 64 blocks
    index.record("a", long, 100)
    assert (len(index), index.cached_tokens(long)) == (64, {"a": tokens(64)})
    index.record("a", names(*range(100, 148)), 100)
    assert index.cached_tokens(long) == {"a": tokens(36)}, "28 of its blocks had to go, in steps of two"
    assert len(index) == 100
    check_integrity(index)


def test_a_long_prompt_keeps_the_names_that_lie_within_the_bound() -> None:
    index = PrefixIndex[bytes](TOLD)
    index.record("a", names(*range(60)), 51)
    assert index.cached_tokens(names(*range(60))) == {"a": tokens(50)}
