"""What a gateway's streams have said outlasts it, for a while, and only as a whole beginning."""

from __future__ import annotations

import msgspec
import pytest

from serve_app.gateways.beginnings import KEPT_S, Beginnings, Grown, Told, joined, pieces_of


def told(*grown: tuple[bytes, int, bytes], gateway: str = "a", ended: tuple[bytes, ...] = ()) -> Told:
    return Told(gateway, tuple(Grown(*each) for each in grown), ended)


def test_a_beginning_is_all_that_was_told_of_it_and_is_given_once() -> None:
    kept = Beginnings()
    kept.hear(told((b"k", 0, b"1;2,3"), (b"other", 0, b"9")), 0.0)
    kept.hear(told((b"k", 2, b"4")), 1.0)
    assert pieces_of(kept.take(b"k", "a", 2.0)) == [[1], [2, 3], [4]]
    assert kept.take(b"k", "a", 2.0) == b""
    assert pieces_of(kept.take(b"other", "a", 2.0)) == [[9]]
    assert (len(kept), kept.size) == (0, 0)


def test_another_gateway_s_stream_of_the_same_request_is_another_one() -> None:
    kept = Beginnings()
    kept.hear(told((b"k", 0, b"1")), 0.0)
    assert kept.take(b"k", "b", 0.0) == b""
    kept.hear(told(gateway="b", ended=(b"k",)), 0.0)
    assert kept.take(b"k", "a", 0.0) == b"1"


def test_what_has_ended_has_no_beginning_and_what_begins_again_has_its_own() -> None:
    kept = Beginnings()
    kept.hear(told((b"k", 0, b"1;2")), 0.0)
    kept.hear(told((b"k", 0, b"7"), ended=(b"k",)), 1.0)
    assert kept.take(b"k", "a", 1.0) == b"7"


@pytest.mark.parametrize("start", [1, 3])
def test_a_beginning_with_a_gap_is_none(start: int) -> None:
    kept = Beginnings()
    kept.hear(told((b"k", 0, b"1;2")), 0.0)
    kept.hear(told((b"k", start, b"5")), 1.0)
    kept.hear(told((b"k", start + 1, b"6")), 2.0)
    assert (kept.take(b"k", "a", 2.0), kept.size) == (b"", 0)


def test_beginnings_leave_when_their_gateway_has_been_silent_for_long() -> None:
    kept = Beginnings()
    kept.hear(told((b"k", 0, b"1"), (b"l", 0, b"1")), 0.0)
    assert kept.take(b"k", "a", KEPT_S - 1) == b"1"
    kept.hear(told((b"m", 0, b"2"), gateway="b"), KEPT_S)
    assert (kept.take(b"l", "a", KEPT_S), len(kept), kept.size) == (b"", 1, 1)


def test_a_gateway_that_speaks_keeps_all_of_its_own() -> None:
    kept = Beginnings()
    kept.hear(told((b"k", 0, b"1")), 0.0)
    kept.hear(told(), KEPT_S - 1)
    assert kept.take(b"k", "a", KEPT_S + 1) == b"1"


def test_what_has_not_grown_for_longest_leaves_first() -> None:
    kept = Beginnings(most_bytes=6, longest_bytes=5)
    kept.hear(told((b"k", 0, b"111"), (b"l", 0, b"222")), 0.0)
    kept.hear(told((b"k", 1, b"4")), 1.0)
    assert (kept.take(b"l", "a", 1.0), kept.size) == (b"", 4)
    kept.hear(told((b"k", 2, b"55")), 2.0)  # longer than one may be
    assert (kept.take(b"k", "a", 2.0), len(kept), kept.size) == (b"", 0, 0)


def test_after_a_purge_no_stream_has_its_beginning_back() -> None:
    kept = Beginnings()
    kept.hear(told((b"k", 0, b"1;2")), 0.0)
    kept.clear()
    kept.hear(told((b"k", 2, b"3")), 1.0)
    assert (kept.take(b"k", "a", 1.0), kept.size) == (b"", 0)


def test_pieces_are_told_as_they_came() -> None:
    assert pieces_of(joined([b"1,2", b"3"])) == [[1, 2], [3]]
    assert pieces_of(b"") == []
    with pytest.raises(msgspec.DecodeError):
        pieces_of(b"1;x")
