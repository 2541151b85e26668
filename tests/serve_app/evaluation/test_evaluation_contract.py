"""The values that suites, scorers and runners share."""

from __future__ import annotations

import math

import pytest

from serve_app.evaluation import Case, Score, ScoreError


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf])
def test_a_score_outside_of_its_range_is_an_error_and_no_score(value: float) -> None:
    with pytest.raises(ScoreError, match="not within 0 to 1"):
        Score(value, False, "")


def test_the_question_of_a_case_is_the_last_thing_that_the_user_said() -> None:
    said = ({"role": "user", "content": "one"}, {"role": "assistant", "content": "?"})
    parts = [{"type": "text", "text": "two"}, {"type": "image_url", "image_url": {}}]
    assert Case("a", said).question == "one"
    assert Case("a", (*said, {"role": "user", "content": parts})).question == "two"
    assert Case("a", ()).question == ""
