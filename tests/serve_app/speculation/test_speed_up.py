"""The speed-up of speculative decoding, as Leviathan et al. (2023) have it."""

from __future__ import annotations

import random

import pytest

from serve_app.speculation import acceptance_rate, expected_tokens, speed_up


@pytest.mark.parametrize(
    ("acceptance", "depth", "expected"),
    [(0.0, 4, 1.0), (1.0, 4, 5.0), (0.5, 1, 1.5), (0.5, 2, 1.75), (0.8, 0, 1.0), (0.8, 5, 3.68928)],
)
def test_a_step_gives_the_tokens_of_a_capped_geometric_series(
    acceptance: float, depth: int, expected: float
) -> None:
    assert expected_tokens(acceptance, depth) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("acceptance", "depth", "expected"),
    [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86)],
)
def test_the_papers_table_1_holds(acceptance: float, depth: int, expected: float) -> None:
    """For a draft that costs nothing."""
    assert speed_up(acceptance, depth, 1.0) == pytest.approx(expected, abs=0.005)


def test_drafting_takes_its_share() -> None:
    assert speed_up(0.8, 5, 1 + 5 * 0.05) == pytest.approx(3.68928 / 1.25)


def test_what_has_no_draft_gains_nothing() -> None:
    assert speed_up(0.9, 4, 1.0, coverage=0.0) == 1.0
    assert speed_up(0.5, 1, 1.0, coverage=0.5) == pytest.approx(1.25)


@pytest.mark.parametrize("acceptance", [0.05, 0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("depth", [1, 3, 8])
def test_the_acceptance_is_found_again_from_counts(acceptance: float, depth: int) -> None:
    choose = random.Random(depth)
    drafts = 20_000
    accepted = sum(_accepted(choose, acceptance, depth) for _ in range(drafts))
    assert acceptance_rate(drafts, drafts * depth, accepted) == pytest.approx(acceptance, abs=0.015)


@pytest.mark.parametrize(
    ("counts", "expected"), [((0, 0, 0), 0.0), ((8, 32, 0), 0.0), ((8, 32, 32), 1.0), ((8, 0, 0), 0.0)]
)
def test_the_ends_are_exact(counts: tuple[int, int, int], expected: float) -> None:
    assert acceptance_rate(*counts) == pytest.approx(expected, abs=1e-6)


def _accepted(choose: random.Random, acceptance: float, depth: int) -> int:
    count = 0
    while count < depth and choose.random() < acceptance:
        count += 1
    return count
