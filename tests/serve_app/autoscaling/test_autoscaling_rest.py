"""An engine's way to sleep and back, in virtual time."""

from __future__ import annotations

from serve_app.autoscaling import Rest, Sleeper

QUIET_S = 3.0


def asleep() -> Sleeper:
    sleeper = Sleeper(QUIET_S)
    sleeper.next(True, False, 0.0)
    assert sleeper.next(True, False, QUIET_S) is Rest.SLEEP
    sleeper.slept()
    return sleeper


def test_without_an_order_it_does_not_sleep() -> None:
    sleeper = Sleeper(QUIET_S)
    assert {sleeper.next(False, False, 100.0 * look) for look in range(5)} == {Rest.NOTHING}
    assert not sleeper.is_withdrawn


def test_after_an_order_it_takes_no_requests_and_sleeps_once_gateways_know() -> None:
    sleeper = Sleeper(QUIET_S)
    assert sleeper.next(True, False, 0.0) is Rest.NOTHING
    assert sleeper.is_withdrawn
    assert not sleeper.is_asleep
    assert sleeper.next(True, False, QUIET_S - 0.1) is Rest.NOTHING
    assert sleeper.next(True, False, QUIET_S) is Rest.SLEEP


def test_what_runs_is_answered_before() -> None:
    sleeper = Sleeper(QUIET_S)
    looks = [sleeper.next(True, True, float(second)) for second in range(60)]
    assert set(looks) == {Rest.NOTHING}
    assert sleeper.next(True, False, 60.0) is Rest.NOTHING
    assert sleeper.next(True, False, 60.0 + QUIET_S) is Rest.SLEEP


def test_an_order_withdrawn_in_time_prevents_sleep() -> None:
    sleeper = Sleeper(QUIET_S)
    sleeper.next(True, False, 0.0)
    assert sleeper.next(False, False, QUIET_S) is Rest.NOTHING
    assert not sleeper.is_withdrawn
    assert sleeper.next(True, False, QUIET_S + 1) is Rest.NOTHING  # the wait begins again


def test_it_wakes_on_order_and_takes_requests_once_awake() -> None:
    sleeper = asleep()
    assert sleeper.next(True, False, 100.0) is Rest.NOTHING
    assert sleeper.next(False, False, 101.0) is Rest.WAKE
    assert sleeper.is_withdrawn
    assert sleeper.is_asleep
    sleeper.woke()
    assert not sleeper.is_withdrawn
    assert not sleeper.is_asleep


def test_a_request_that_comes_all_the_same_wakes_it_for_as_long_as_it_takes() -> None:
    sleeper = asleep()
    assert sleeper.next(True, True, 100.0) is Rest.WAKE
    sleeper.woke()
    assert sleeper.is_withdrawn
    assert sleeper.next(True, True, 101.0) is Rest.NOTHING
    assert sleeper.next(True, False, 102.0) is Rest.NOTHING
    assert sleeper.next(True, False, 102.0 + QUIET_S) is Rest.SLEEP
