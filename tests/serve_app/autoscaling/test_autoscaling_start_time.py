"""The time of a start is learned from starts that ended."""

from __future__ import annotations

import pytest

from serve_app.autoscaling import StartTime


def test_the_default_holds_until_a_start_was_seen() -> None:
    start_time = StartTime(60.0)
    assert start_time.expected_s(0.0) == 60.0
    start_time.observe(ready=3, starting=0, now=5.0)
    assert start_time.expected_s(5.0) == 60.0


def test_the_first_start_replaces_the_default_and_later_ones_move_it() -> None:
    start_time = StartTime(60.0)
    start_time.observe(1, 1, 0.0)
    start_time.observe(2, 0, 10.0)
    assert start_time.expected_s(10.0) == pytest.approx(10.0)
    start_time.observe(2, 1, 100.0)
    start_time.observe(3, 0, 130.0)
    assert 10.0 < start_time.expected_s(130.0) < 30.0


def test_orders_become_ready_in_the_order_they_were_given() -> None:
    start_time = StartTime(60.0)
    start_time.observe(0, 1, 0.0)
    start_time.observe(0, 2, 15.0)
    start_time.observe(1, 1, 20.0)
    assert start_time.expected_s(20.0) == pytest.approx(20.0)
    start_time.observe(2, 0, 35.0)
    assert start_time.expected_s(35.0) == pytest.approx(20.0)


def test_starts_that_are_called_off_say_nothing() -> None:
    start_time = StartTime(60.0)
    start_time.observe(1, 2, 0.0)
    start_time.observe(1, 0, 3.0)
    assert start_time.expected_s(3.0) == 60.0
    start_time.observe(2, 0, 4.0)
    assert start_time.expected_s(4.0) == 60.0


def test_a_start_that_lasts_longer_is_what_a_start_takes() -> None:
    start_time = StartTime(60.0)
    start_time.observe(1, 1, 0.0)
    assert start_time.expected_s(45.0) == 60.0
    assert start_time.expected_s(200.0) == 200.0


def test_a_replica_that_is_replaced_is_a_start_too() -> None:
    start_time = StartTime(60.0)
    start_time.observe(2, 0, 0.0)
    start_time.observe(1, 1, 10.0)
    start_time.observe(2, 0, 22.0)
    assert start_time.expected_s(22.0) == pytest.approx(12.0)
