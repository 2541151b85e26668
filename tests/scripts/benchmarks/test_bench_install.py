"""The benchmark of an installation: what counts as what."""

from __future__ import annotations

import pytest
from benchmarks.install import Installed, figures_of


def test_a_second_pod_is_compared_with_all_that_the_first_one_did_from_its_start_on() -> None:
    [*_, ratio] = figures_of([Installed(install_s=200.0, models_s=30.0, first_s=70.0, second_s=50.0)])
    assert ratio.median == pytest.approx(0.5)
    assert ratio.met


def test_the_whole_way_counts_the_installation_too() -> None:
    whole, start, *_ = figures_of([Installed(install_s=250.0, models_s=30.0, first_s=40.0, second_s=40.0)])
    assert (whole.median, whole.met) == (320.0, False)
    assert (start.median, start.met) == (40.0, True)
