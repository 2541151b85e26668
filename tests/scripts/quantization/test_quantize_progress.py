"""What a quantization says of how far it is."""

from __future__ import annotations

import pytest
from quantization.progress import STAGES, Share, stage_line


def test_stages_are_numbered_in_their_order() -> None:
    lines = [stage_line(stage, "x") for stage in STAGES]
    assert lines[0] == "[1/6] x"
    assert lines[-1] == "[6/6] x"
    with pytest.raises(ValueError, match="not in tuple"):
        stage_line("nothing", "x")


def test_each_tenth_is_said_once_with_the_time_left() -> None:
    share = Share("answers", 128, 100.0)
    said = [share.line(done, 100.0 + done) for done in range(16, 129, 16)]
    assert said[0] == "answers: 16 of 128 (12 %), 2 min left"
    assert said[3] == "answers: 64 of 128 (50 %), 64 s left"
    assert said[-1] is None, "the end says itself"
    assert share.line(112, 300.0) is None


@pytest.mark.parametrize("total", [0, 1])
def test_a_stage_of_one_step_says_no_share(total: int) -> None:
    assert Share("answers", total, 0.0).line(total, 5.0) is None
