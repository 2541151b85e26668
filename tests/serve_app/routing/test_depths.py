"""A prompt of any length has few names, and they cover it but for a sixteenth at most."""

from __future__ import annotations

from serve_app.routing.depths import EACH_BLOCK, depth, depths, names_within


def test_short_prompts_have_a_name_for_each_block() -> None:
    assert list(depths(EACH_BLOCK)) == list(range(1, EACH_BLOCK + 1))
    assert list(depths(0)) == []


def test_each_doubling_has_sixteen_more() -> None:
    assert [at for at in depths(72) if at > 58] == [60, 62, 64, 68, 72]
    assert names_within(1024) == 112
    assert depth(112) == 1024


def test_names_cover_nearly_the_whole_of_any_prompt() -> None:
    for blocks in range(1, 40_000, 7):
        covered = depth(names_within(blocks))
        assert covered <= blocks < covered * (1 + 1 / 16) + 1


def test_as_many_are_counted_as_there_are() -> None:
    for blocks in range(3000):
        assert names_within(blocks) == len(list(depths(blocks)))
