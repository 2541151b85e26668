"""Texts looked up among each other: the nearest others, and whether a hit was judged the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from cache_lab.nearest import Among, look_up, nearest_others, read_judged
from cache_lab.pairs import LabelledPair

from serve_app.cache.decision import similarity_only


class Angles:
    """A vector in a plane for each text; ``None``: the text is not looked up."""

    def __init__(self, degrees: Mapping[str, float | None]) -> None:
        self._degrees = degrees

    def to_look_up(self, text: str) -> np.ndarray | None:
        angle = self._degrees[text]
        return None if angle is None else np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])


def pair(query: str, candidate: str, same: bool = True) -> LabelledPair:
    return LabelledPair(query, candidate, same, "para:x" if same else "diff:x")


PAIRS = [pair("a", "b"), pair("c", "d", same=False), pair("A", "e")]
ANGLES = Angles({"a": 0, "A": 0, "b": 1, "c": 10, "d": 11, "e": 90})


def test_a_texts_nearest_others_are_neither_its_partners_nor_itself_in_other_letters() -> None:
    found = {text: [other for other, _ in nearest] for text, nearest in nearest_others(PAIRS, ANGLES)}
    assert found["a"] == ["c", "d", "e"]
    assert found["c"][0] == "b"
    assert "d" not in found["c"]


def test_a_text_without_a_vector_is_neither_looked_up_nor_found() -> None:
    found = dict(
        nearest_others([pair("a", "b"), pair("c", "d")], Angles({"a": 0, "b": 1, "c": 2, "d": None}))
    )
    assert sorted(found) == ["a", "b", "c"]
    assert all(other != "d" for nearest in found.values() for other, _ in nearest)


@pytest.mark.parametrize(
    ("judged", "right", "wrong", "unjudged"),
    [
        ([], 0, 4, 4),
        ([pair("b", "c")], 2, 2, 2),
        ([pair("c", "b"), pair("d", "b", same=False)], 2, 2, 1),
    ],
)
def test_the_first_neighbour_that_passes_answers_and_is_right_only_if_it_was_judged_the_same(
    judged: Sequence[LabelledPair], right: int, wrong: int, unjudged: int
) -> None:
    pairs = [pair("a", "b"), pair("c", "d")]
    angles = Angles({"a": 0, "b": 1, "c": 10, "d": 11})
    found = look_up(pairs, similarity_only(0.9), angles, judged)
    assert found == Among(4, right, wrong, unjudged)
    assert found.wrong_share == wrong / 4


def test_no_pair_is_judged_twice() -> None:
    keys = [frozenset((pair.query, pair.candidate)) for pair in read_judged()]
    assert len(keys) == len(set(keys)) > 200
