"""Who answers a request first is told to all who ask after it."""

from __future__ import annotations

from serve_app.gateways.announced import JOIN_WINDOW_S, MOST_ANNOUNCED, Announced, AnnouncedRequests, Ended


def test_the_first_gateway_answers_and_all_others_are_told_so() -> None:
    announced = AnnouncedRequests()
    assert announced.meet(Announced(b"k", "a"), 0.0) is None
    assert announced.meet(Announced(b"k", "b"), 1.0) == "a"
    assert announced.meet(Announced(b"k", "a"), 1.0) is None
    assert announced.meet(Announced(b"other", "b"), 1.0) is None


def test_what_has_ended_is_joined_no_more() -> None:
    announced = AnnouncedRequests()
    announced.meet(Announced(b"k", "a"), 0.0)
    announced.end(Ended(b"k", "a"))
    assert announced.meet(Announced(b"k", "b"), 1.0) is None
    assert announced.meet(Announced(b"k", "a"), 1.0) == "b"


def test_who_took_a_lost_request_over_is_joined_from_then_on() -> None:
    announced = AnnouncedRequests()
    announced.meet(Announced(b"k", "lost"), 0.0)
    announced.end(Ended(b"k", "lost", by="a"))
    announced.end(Ended(b"k", "lost", by="b"))
    assert announced.meet(Announced(b"k", "c"), 2.0) == "a"
    announced.end(Ended(b"k", "a"))
    assert announced.meet(Announced(b"k", "c"), 2.0) is None


def test_a_late_end_of_another_gateway_takes_nothing_away() -> None:
    announced = AnnouncedRequests()
    announced.meet(Announced(b"k", "b"), 0.0)
    announced.end(Ended(b"k", "a"))
    assert announced.meet(Announced(b"k", "c"), 1.0) == "b"


def test_a_gateway_that_never_tells_an_end_is_forgotten_after_the_window() -> None:
    announced = AnnouncedRequests()
    announced.meet(Announced(b"k", "a"), 0.0)
    assert announced.meet(Announced(b"k", "b"), JOIN_WINDOW_S) is None
    assert announced.meet(Announced(b"k", "c"), JOIN_WINDOW_S) == "b"


def test_the_table_is_bounded_and_forgets_the_oldest() -> None:
    announced = AnnouncedRequests()
    for number in range(MOST_ANNOUNCED + 1):
        announced.meet(Announced(number.to_bytes(4), "a"), 0.0)
    assert len(announced) == MOST_ANNOUNCED
    assert announced.meet(Announced((0).to_bytes(4), "b"), 1.0) is None
    assert announced.meet(Announced((2).to_bytes(4), "b"), 1.0) == "a"
