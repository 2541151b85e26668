"""A file that is being replaced is not gone."""

from __future__ import annotations

from serve_app.prompts.gone import Gone

ALL = {"reply/1.md", "reply/prompt.yaml", "labels.yaml"}


def test_a_file_is_gone_if_two_looks_in_turn_miss_it() -> None:
    gone = Gone()
    assert gone.is_sure(ALL)
    assert not gone.is_sure(ALL - {"labels.yaml"})
    assert gone.is_sure(ALL - {"labels.yaml"})
    assert gone.is_sure(ALL - {"labels.yaml"})


def test_a_file_that_is_back_at_the_next_look_was_replaced() -> None:
    gone = Gone()
    assert gone.is_sure(ALL)
    for name in sorted(ALL) * 2:
        assert not gone.is_sure(ALL - {name})
        assert gone.is_sure(ALL)


def test_files_that_are_replaced_one_after_the_other_are_not_gone() -> None:
    gone = Gone()
    assert gone.is_sure(ALL)
    assert [gone.is_sure(ALL - {name}) for name in sorted(ALL)] == [False, False, False]
    assert gone.is_sure(ALL)


def test_new_files_are_there_at_once() -> None:
    gone = Gone()
    assert gone.is_sure(ALL)
    assert gone.is_sure(ALL | {"reply/2.md"})
