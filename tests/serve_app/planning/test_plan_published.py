"""Expected decode times against times that others have published. The two constants of experts are fitted to
``FITTED``, so these hold the fit, not a forecast; nothing is fitted to ``FORECAST``."""

from __future__ import annotations

import pytest
from benchmarks.published import FITTED, FORECAST, FOUR_BIT_EXPERTS, VERY_SMALL, Case

from serve_app.planning.speed import UNCERTAINTY


@pytest.mark.parametrize("case", FITTED + FORECAST, ids=lambda case: case.title)
def test_the_decode_time_is_within_what_the_plan_says_of_itself(case: Case) -> None:
    assert case.expected_ms() == pytest.approx(case.published, rel=UNCERTAINTY), case.source


def test_eight_pairs_of_model_and_gpus_are_forecast_with_nothing_fitted_to_them() -> None:
    assert len({(case.model.name, case.device, case.ranks) for case in FORECAST}) >= 8


def test_one_request_on_a_four_bit_model_over_eight_is_told_too_fast() -> None:
    assert 0.4 < FOUR_BIT_EXPERTS.ratio() < 1


def test_one_request_on_a_very_small_model_is_told_too_fast() -> None:
    assert 0.4 < VERY_SMALL.ratio() < 1 - UNCERTAINTY
