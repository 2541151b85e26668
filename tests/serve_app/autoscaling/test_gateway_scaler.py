"""How many gateways there are."""

from __future__ import annotations

import pytest

from serve_app.autoscaling.gateways import (
    LATE_FOR_S,
    SPARE_FOR_S,
    TOKENS_PER_S_OF_A_GATEWAY,
    TOKENS_PER_S_OF_A_GPU,
    GatewayPace,
    GatewayScaler,
    gateways_for,
)

LATE = GatewayPace(lag_s=0.2, cpu=0.95)
CALM = GatewayPace(lag_s=0.001, cpu=0.3)
IDLE = GatewayPace(lag_s=0.001, cpu=0.02)


def scaler(fewest: int = 1, most: int = 8) -> GatewayScaler:
    return GatewayScaler(fewest, most, max_lag_s=0.05)


def after(policy: GatewayScaler, paces: list[GatewayPace], seconds: float) -> int:
    """What is wanted after ``paces`` have held for so long; asked once a second."""
    wanted = len(paces)
    for second in range(int(seconds) + 1):
        found = policy.decide(paces, wanted, 1000.0 + second)
        if found != wanted:
            return found
    return wanted


@pytest.mark.parametrize(("gpus", "gateways"), [(0, 1), (1, 1), (2, 2), (8, 7), (64, 54)])
def test_the_expected_tokens_of_gpus_have_room(gpus: int, gateways: int) -> None:
    assert gateways_for(gpus) == gateways
    assert gateways * TOKENS_PER_S_OF_A_GATEWAY >= gpus * TOKENS_PER_S_OF_A_GPU


def test_loops_that_stay_late_by_their_own_work_get_a_gateway_more() -> None:
    assert after(scaler(), [LATE], LATE_FOR_S - 1) == 1
    assert after(scaler(), [LATE], LATE_FOR_S) == 2


def test_as_many_are_added_at_once_as_the_cores_in_use_need() -> None:
    assert after(scaler(), [LATE] * 4, LATE_FOR_S) == 7  # 3.8 cores at 0.6 of one each


def test_a_burst_that_is_over_adds_none() -> None:
    policy = scaler()
    for second in range(60):
        pace = LATE if second % 10 < 9 else CALM
        assert policy.decide([pace], 1, 1000.0 + second) == 1


def test_a_loop_that_is_late_because_others_have_the_machine_adds_none() -> None:
    starved = GatewayPace(lag_s=0.5, cpu=0.2)
    assert after(scaler(), [starved], 10 * LATE_FOR_S) == 1


def test_one_late_gateway_among_calm_ones_adds_none() -> None:
    assert after(scaler(), [GatewayPace(lag_s=0.12, cpu=0.9), CALM, CALM], 10 * LATE_FOR_S) == 3


def test_a_gateway_too_many_is_stopped_after_a_while_one_at_a_time() -> None:
    assert after(scaler(), [IDLE] * 4, SPARE_FOR_S - 1) == 4
    assert after(scaler(), [IDLE] * 4, SPARE_FOR_S) == 3


def test_what_is_needed_stays() -> None:
    assert after(scaler(), [CALM] * 2, 2 * SPARE_FOR_S) == 1  # 0.6 cores fit into one
    assert after(scaler(), [GatewayPace(0.001, 0.4)] * 2, 2 * SPARE_FOR_S) == 2


def test_the_bounds_hold() -> None:
    assert after(scaler(most=4), [LATE] * 4, 10 * LATE_FOR_S) == 4
    assert after(scaler(most=5), [LATE] * 4, LATE_FOR_S) == 5
    assert after(scaler(fewest=2), [IDLE] * 2, 2 * SPARE_FOR_S) == 2
    assert scaler(fewest=3).decide([IDLE], 1, 0.0) == 3  # the settings have changed
    assert scaler(most=2).decide([LATE] * 5, 5, 0.0) == 2


def test_nothing_changes_while_gateways_start_or_stop() -> None:
    policy = scaler()
    for second in range(100):  # a second one has been asked for and does not report yet
        assert policy.decide([LATE], 2, 1000.0 + second) == 2
    for second in range(int(LATE_FOR_S)):  # the time begins when all of them report
        assert policy.decide([LATE] * 2, 2, 1100.0 + second) == 2


def test_after_a_change_the_time_begins_anew() -> None:
    policy = scaler()
    for second in range(int(LATE_FOR_S)):
        assert policy.decide([LATE], 1, 1000.0 + second) == 1
    assert policy.decide([LATE], 1, 1000.0 + LATE_FOR_S) == 2
    assert policy.decide([LATE] * 2, 2, 1001.0 + LATE_FOR_S) == 2
