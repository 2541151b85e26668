"""Counters of many processes grow, start anew and go."""

from __future__ import annotations

from serve_app.autoscaling import Increments


def test_growth_is_counted_once_over_sources_that_come_and_go() -> None:
    increments = Increments()
    assert increments.since_last({"a": 5.0}) == 5.0
    assert increments.since_last({"a": 7.0, "b": 3.0}) == 5.0
    assert increments.since_last({"a": 7.0, "b": 3.0}) == 0.0
    assert increments.since_last({"b": 4.0}) == 1.0


def test_a_counter_that_fell_began_anew() -> None:
    increments = Increments()
    increments.since_last({"a": 100.0})
    assert increments.since_last({"a": 2.0}) == 2.0
