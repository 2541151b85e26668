"""The replay without servers: the same outcomes every time, and a record of what the bound said."""

from __future__ import annotations

from typing import Any

import numpy as np
from cache_lab.in_process import Remembered, replay_in_process
from cache_lab.pairs import LabelledPair
from cache_lab.replay import RIGHT, WRONG, Replay, markdown
from cache_lab.stream import Meanings, stream

from serve_app.cache.decision import similarity_only

TOPICS = 60
PAIRS = [LabelledPair(f"w{n} asks", f"w{n} wonders", True, "para:x") for n in range(TOPICS)] + [
    LabelledPair(f"w{n} asks", f"w{n} denies", False, "hard:x") for n in range(TOPICS // 2)
]


class Letters:
    """Vectors by the first word: every text of a topic looks the same."""

    dimension = TOPICS

    def to_look_up(self, text: str) -> Any:
        return np.eye(TOPICS, dtype=np.float32)[int(text.split(maxsplit=1)[0][1:])]

    def of_answer(self, text: str) -> Any:
        return np.eye(TOPICS, dtype=np.float32)[hash_of(text) % TOPICS]


def hash_of(text: str) -> int:
    return sum(text.encode())


def replayed(max_error_rate: float | None) -> Replay:
    vectors: Any = Letters()
    return replay_in_process(
        "x",
        Remembered(similarity_only()),
        vectors,
        list(stream(PAIRS, 2000, seed=1)),
        Meanings(PAIRS),
        max_error_rate=max_error_rate,
        variation=0.0,
        seed=1,
    )


def test_two_runs_give_the_same_figures() -> None:
    one, two = replayed(0.02), replayed(0.02)
    assert one.values() == two.values()


def test_a_bound_gives_up_hits_where_wrong_ones_look_like_right_ones() -> None:
    free, bounded = replayed(None), replayed(0.02)
    assert free.count(WRONG) > 0
    assert bounded.count(WRONG) < free.count(WRONG) / 4
    assert free.outcomes[0] == "miss"


def test_the_record_counts_what_was_let_through_and_what_was_held_back() -> None:
    free, bounded = replayed(None), replayed(0.02)
    assert free.record.counts(None) == {
        RIGHT: free.count(RIGHT),
        WRONG: free.count(WRONG),
        "wrong, unlabelled": 0,
    }
    assert "error-bound" in bounded.record.refusals
    held = sum(sum(bounded.record.counts(refusal).values()) for refusal in bounded.record.refusals)
    assert held > 0
    text = markdown("pairs", [free, bounded])
    assert "How often the bound was right" in text
    assert "wrong by the labels" in text
