"""How health checks change an upstream's state."""

from __future__ import annotations

import pytest

from serve_app.fleet import EngineState, Health, Probe
from serve_app.fleet.health import TIMEOUTS_TO_FAIL


def serving() -> Health:
    health = Health()
    assert health.record(Probe.HEALTHY, bytes_arrived=False) is EngineState.READY
    return health


@pytest.mark.parametrize("probe", [Probe.UNHEALTHY, Probe.REFUSED])
def test_an_unhealthy_or_refusing_server_has_failed_at_once(probe: Probe) -> None:
    assert serving().record(probe, bytes_arrived=True) is EngineState.FAILED


def test_timeouts_are_a_failure_after_some_in_a_row() -> None:
    health = serving()
    states = [health.record(Probe.TIMED_OUT, bytes_arrived=False) for _ in range(TIMEOUTS_TO_FAIL)]
    assert states == [EngineState.READY] * (TIMEOUTS_TO_FAIL - 1) + [EngineState.FAILED]


def test_an_answer_between_timeouts_starts_the_count_again() -> None:
    health = serving()
    for _ in range(5):
        for _ in range(TIMEOUTS_TO_FAIL - 1):
            assert health.record(Probe.TIMED_OUT, bytes_arrived=False) is EngineState.READY
        assert health.is_doubtful
        health.record(Probe.HEALTHY, bytes_arrived=False)
        assert not health.is_doubtful


def test_a_server_that_answers_requests_is_alive_despite_timeouts() -> None:
    health = serving()
    assert {health.record(Probe.TIMED_OUT, bytes_arrived=True) for _ in range(10)} == {EngineState.READY}


def test_a_server_that_has_not_served_yet_fails_at_a_timeout() -> None:
    health = Health()
    assert health.record(Probe.TIMED_OUT, bytes_arrived=False) is EngineState.FAILED
    assert health.record(Probe.TIMED_OUT, bytes_arrived=True) is EngineState.FAILED
    assert health.record(Probe.HEALTHY, bytes_arrived=False) is EngineState.READY
