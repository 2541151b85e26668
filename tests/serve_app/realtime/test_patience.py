"""The clocks of a session, with times instead of waiting."""

from __future__ import annotations

import pytest

from serve_app.errors import SessionTimeout, UpstreamFailed
from serve_app.realtime.patience import Patience


def committed(at: float) -> Patience:
    patience = Patience(30.0, 60.0)
    patience.client_spoke(at)
    patience.note(at, is_finishing=True, has_ended=False)
    return patience


def test_a_silent_client_is_refused_after_its_time() -> None:
    patience = Patience(30.0, 60.0)
    patience.client_spoke(100.0)
    assert patience.left_s(110.0) == 20.0
    with pytest.raises(SessionTimeout):
        patience.left_s(130.0)
    patience.client_spoke(130.0)
    assert patience.left_s(130.0) == 30.0


def test_the_wait_for_the_text_is_no_silence_of_the_client() -> None:
    patience = committed(100.0)
    assert patience.left_s(129.0) > 0
    assert patience.left_s(140.0) == 20.0
    patience.note(141.0, is_finishing=False, has_ended=True)
    assert patience.left_s(141.0) == 30.0
    assert patience.left_s(170.0) == 1.0
    with pytest.raises(SessionTimeout):
        patience.left_s(171.0)


def test_what_is_discarded_ends_without_a_text_and_counts_as_an_end() -> None:
    patience = committed(100.0)
    patience.note(129.0, is_finishing=False, has_ended=False)
    assert patience.left_s(130.0) == 29.0


def test_an_end_by_the_engine_itself_begins_the_silence_anew() -> None:
    patience = Patience(30.0, 60.0)
    patience.client_spoke(100.0)
    patience.note(120.0, is_finishing=False, has_ended=True)
    assert patience.left_s(131.0) == 19.0


def test_it_looks_again_in_time_for_a_silence_that_begins_with_the_text() -> None:
    assert committed(100.0).left_s(100.0) == 30.0


def test_an_engine_whose_text_flows_has_not_stalled() -> None:
    patience = committed(100.0)
    for at in range(110, 300, 10):
        patience.engine_spoke(at)
        patience.note(at, is_finishing=True, has_ended=False)
    assert patience.stall_left_s(300.0) == 50.0
    with pytest.raises(UpstreamFailed) as stalled:
        patience.left_s(350.0)
    assert stalled.value.code == "upstream_stalled"


def test_an_engine_that_spoke_long_ago_has_its_time_from_the_commit() -> None:
    patience = Patience(30.0, 60.0)
    patience.engine_spoke(1.0)
    patience.note(100.0, is_finishing=True, has_ended=False)
    assert patience.stall_left_s(100.0) == 60.0
