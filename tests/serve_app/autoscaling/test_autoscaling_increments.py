"""Counters of many processes grow, restart, vanish and return."""

from __future__ import annotations

from serve_app.autoscaling import Increments
from serve_app.autoscaling.increments import MOST_SOURCES


def test_growth_is_counted_once_over_sources_that_come_and_go() -> None:
    increments = Increments()
    assert increments.since_last({"a": 5.0}) == 0.0
    assert increments.since_last({"a": 7.0, "b": 3.0}) == 2.0
    assert increments.since_last({"a": 7.0, "b": 3.0}) == 0.0
    assert increments.since_last({"b": 4.0}) == 1.0


def test_a_counter_that_fell_has_restarted() -> None:
    increments = Increments()
    increments.since_last({"a": 100.0})
    assert increments.since_last({"a": 2.0}) == 2.0


def test_what_a_silent_source_counted_meanwhile_is_growth_when_it_comes_back() -> None:
    increments = Increments()
    increments.since_last({"a": 100.0, "b": 1.0})
    increments.since_last({})
    assert increments.since_last({"a": 103.0}) == 3.0


def test_a_history_that_nobody_saw_is_not_counted_as_if_it_came_now() -> None:
    assert Increments().since_last({"a": 1e6}) == 0.0


def test_sources_that_never_come_back_are_forgotten() -> None:
    increments = Increments()
    increments.since_last({"old": 5.0})
    increments.since_last(dict.fromkeys(range(MOST_SOURCES), 1.0))
    assert increments.since_last({"old": 9.0}) == 0.0
