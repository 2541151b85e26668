"""What looks make of an upstream's state."""

from __future__ import annotations

import pytest

from serve_app.fleet import EngineState, Health, Look
from serve_app.fleet.health import SILENT_LOOKS


def serving() -> Health:
    health = Health()
    assert health.saw(Look.WELL, heard=False) is EngineState.READY
    return health


@pytest.mark.parametrize("look", [Look.UNWELL, Look.NOBODY])
def test_what_says_that_it_is_not_well_has_failed_at_once(look: Look) -> None:
    assert serving().saw(look, heard=True) is EngineState.FAILED


def test_silence_is_a_failure_after_some_looks_in_a_row() -> None:
    health = serving()
    states = [health.saw(Look.SILENT, heard=False) for _ in range(SILENT_LOOKS)]
    assert states == [EngineState.READY] * (SILENT_LOOKS - 1) + [EngineState.FAILED]


def test_looks_between_which_it_answered_are_not_in_a_row() -> None:
    health = serving()
    for _ in range(5):
        for _ in range(SILENT_LOOKS - 1):
            assert health.saw(Look.SILENT, heard=False) is EngineState.READY
        assert health.is_doubtful
        health.saw(Look.WELL, heard=False)
        assert not health.is_doubtful


def test_what_answers_requests_is_alive_however_silent_to_looks() -> None:
    health = serving()
    assert {health.saw(Look.SILENT, heard=True) for _ in range(10)} == {EngineState.READY}


def test_what_has_not_served_yet_is_not_taken_to_be_well_for_its_silence() -> None:
    health = Health()
    assert health.saw(Look.SILENT, heard=False) is EngineState.FAILED
    assert health.saw(Look.SILENT, heard=True) is EngineState.FAILED
    assert health.saw(Look.WELL, heard=False) is EngineState.READY
