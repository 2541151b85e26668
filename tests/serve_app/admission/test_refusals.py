"""Refusals of one tenant come one after another."""

from __future__ import annotations

import pytest

from serve_app.admission.refusals import EVERY_S, MOST_S, MOST_TENANTS, RefusalPace


def test_the_first_refusal_of_each_tenant_does_not_wait() -> None:
    pace = RefusalPace()

    assert [pace.pause_s(tenant, 5.0) for tenant in ("a", "b")] == [0.0, 0.0]


def test_refusals_of_one_moment_are_spread_and_none_waits_for_long() -> None:
    pace = RefusalPace()

    pauses = [pace.pause_s("a", 5.0) for _ in range(300)]

    assert pauses[:3] == pytest.approx([0.0, EVERY_S, 2 * EVERY_S])
    assert pauses == sorted(pauses)
    assert max(pauses) == pytest.approx(MOST_S)


def test_after_a_pause_the_next_refusal_does_not_wait() -> None:
    pace = RefusalPace()
    for _ in range(10):
        pace.pause_s("a", 5.0)

    assert pace.pause_s("a", 5.0 + 10 * EVERY_S) == 0.0


def test_tenants_are_forgotten_the_longest_unseen_first() -> None:
    pace = RefusalPace()
    for number in range(MOST_TENANTS + 1):
        pace.pause_s(str(number), 5.0)

    assert pace.pause_s("0", 5.0) == 0.0
    assert pace.pause_s(str(MOST_TENANTS), 5.0) > 0
