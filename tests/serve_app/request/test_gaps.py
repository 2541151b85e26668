"""Of a stream each gap is counted, and no more than a bounded number of stamps is kept."""

from __future__ import annotations

import pytest

from serve_app.buckets import middle_ms
from serve_app.request.gaps import Gaps

MS = 1_000_000


def test_each_gap_is_counted_near_its_length() -> None:
    gaps = Gaps(stamps=[5 * MS, 25 * MS, 45 * MS, 145 * MS])
    gaps.count()
    (short, two), (long, one) = sorted(gaps.buckets.items())
    assert (two, one) == (2, 1)
    assert [middle_ms(short), middle_ms(long)] == pytest.approx([20, 100], rel=0.01)
    assert gaps.total_us == 140_000


def test_the_gap_after_a_count_is_counted_once() -> None:
    gaps = Gaps(stamps=[MS, 2 * MS])
    gaps.count()
    gaps.count()
    gaps.stamps.append(4 * MS)
    gaps.count()
    assert sum(gaps.buckets.values()) == 2
    assert gaps.total_us == 3000
    assert gaps.stamps == [4 * MS]


@pytest.mark.parametrize("stamps", [[], [MS]])
def test_a_stream_of_one_piece_or_none_has_no_gap(stamps: list[int]) -> None:
    gaps = Gaps(stamps=stamps)
    gaps.count()
    assert gaps.buckets == {}


def test_two_pieces_at_once_are_a_gap_of_a_microsecond() -> None:
    gaps = Gaps(stamps=[MS, MS])
    gaps.count()
    assert gaps.buckets == {0: 1}
