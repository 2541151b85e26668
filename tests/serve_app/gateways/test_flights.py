"""Who answers a request first is told to all who ask after it."""

from __future__ import annotations

from serve_app.gateways.flights import JOIN_WINDOW_S, MOST_FLIGHTS, Ended, Flight, Flights


def test_the_first_gateway_answers_and_all_others_are_told_so() -> None:
    flights = Flights()
    assert flights.meet(Flight(b"k", "a"), 0.0) is None
    assert flights.meet(Flight(b"k", "b"), 1.0) == "a"
    assert flights.meet(Flight(b"k", "a"), 1.0) is None
    assert flights.meet(Flight(b"other", "b"), 1.0) is None


def test_what_has_ended_is_joined_no_more() -> None:
    flights = Flights()
    flights.meet(Flight(b"k", "a"), 0.0)
    assert flights.meet(Flight(b"x", "a", (Ended(b"k", "a"),)), 1.0) is None
    assert flights.meet(Flight(b"k", "b"), 1.0) is None
    assert flights.meet(Flight(b"k", "a"), 1.0) == "b"


def test_a_late_end_of_another_gateway_takes_nothing_away() -> None:
    flights = Flights()
    flights.meet(Flight(b"k", "b"), 0.0)
    flights.end(Ended(b"k", "a"))
    assert flights.meet(Flight(b"k", "c"), 1.0) == "b"


def test_a_gateway_that_never_tells_an_end_is_forgotten_after_the_window() -> None:
    flights = Flights()
    flights.meet(Flight(b"k", "a"), 0.0)
    assert flights.meet(Flight(b"k", "b"), JOIN_WINDOW_S) is None
    assert flights.meet(Flight(b"k", "c"), JOIN_WINDOW_S) == "b"


def test_the_table_is_bounded_and_forgets_the_oldest() -> None:
    flights = Flights()
    for number in range(MOST_FLIGHTS + 1):
        flights.meet(Flight(number.to_bytes(4), "a"), 0.0)
    assert len(flights) == MOST_FLIGHTS
    assert flights.meet(Flight((0).to_bytes(4), "b"), 1.0) is None
    assert flights.meet(Flight((2).to_bytes(4), "b"), 1.0) == "a"
