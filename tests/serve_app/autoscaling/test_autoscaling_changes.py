"""Which changes of a fleet are kept."""

from __future__ import annotations

import msgspec
import pytest

from serve_app.autoscaling.changes import KEPT, ScalingChange, decoded, encoded, with_change

FIRST = ScalingChange(100.0, 1, 3, 3, "backlog")


def test_the_newest_changes_are_kept_in_order() -> None:
    changes: list[ScalingChange] = []
    for number in range(KEPT + 5):
        changes = with_change(changes, ScalingChange(float(number), number, number + 1, number, "busy"))
    assert [change.before for change in changes] == list(range(5, KEPT + 5))


def test_a_decision_that_is_made_again_is_kept_once_with_its_first_time() -> None:
    again = with_change([FIRST], msgspec.structs.replace(FIRST, at=101.0))
    assert again == [FIRST]
    other = msgspec.structs.replace(FIRST, at=102.0, reason="first_tokens")
    assert with_change(again, other) == [FIRST, other]


def test_they_are_written_and_read() -> None:
    other = ScalingChange(110.0, 3, 3, 1, "surplus", sleep=2)
    assert decoded(encoded([FIRST, other])) == [FIRST, other]


@pytest.mark.parametrize("data", [None, b"", b"{}", b"[{}]", b"[1", b"\xff"])
def test_what_cannot_be_read_is_none(data: bytes | None) -> None:
    assert decoded(data) == []
