"""Departures are a rate only while the fleet is full; it tells those that wait how long."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable
from statistics import median

import pytest

from serve_app.admission import DrainRate
from serve_app.admission.drain import ENOUGH, WINDOW


def drained(times: Iterable[float], since: float = 0.0) -> DrainRate:
    """A request waits from ``since`` on; requests depart at ``times``."""
    drain = DrainRate()
    drain.waits(since)
    for time in times:
        drain.departed(time, queue_is_empty=False)
    return drain


def test_nothing_is_known_at_first() -> None:
    assert DrainRate().per_second(0.0) is None


@pytest.mark.parametrize("departures", range(ENOUGH + 1))
def test_a_few_departures_say_nothing(departures: int) -> None:
    rate = drained(range(1, departures + 1)).per_second(float(departures))
    assert rate == (1.0 if departures >= ENOUGH else None)


@pytest.mark.parametrize("period_s", [0.001, 0.01, 0.3, 1.0, 40.0])
@pytest.mark.parametrize("departures", [ENOUGH, WINDOW, 5 * WINDOW + 3])
def test_a_steady_flow_is_its_rate(period_s: float, departures: int) -> None:
    times = [number * period_s for number in range(1, departures + 1)]
    assert drained(times).per_second(times[-1]) == pytest.approx(1 / period_s)


def test_silence_slows_the_rate() -> None:
    drain = drained(range(1, 11))
    assert [drain.per_second(now) for now in (10.0, 20.0, 100.0)] == [1.0, 0.5, 0.1]


def test_departures_that_found_nobody_waiting_do_not_count() -> None:
    drain = DrainRate()
    for number in range(100):
        drain.departed(number / 1000, queue_is_empty=True)
    assert drain.per_second(0.1) is None


def test_the_time_before_somebody_waited_does_not_count() -> None:
    drain = DrainRate()
    drain.departed(0.0, queue_is_empty=True)
    drain.waits(3600.0)
    for number in range(1, 11):
        drain.departed(3600.0 + number, queue_is_empty=False)
    assert drain.per_second(3610.0) == 1.0


def test_others_that_begin_to_wait_do_not_begin_the_measurement_anew() -> None:
    drain = DrainRate()
    for number in range(1, 11):
        drain.waits(number - 1.0)
        drain.departed(float(number), queue_is_empty=False)
    assert drain.per_second(10.0) == 1.0


def test_a_line_that_forms_again_before_anybody_departs_is_the_same_line() -> None:
    """No departure found it empty: the fleet was full all the time."""
    drain = drained(range(1, 11))
    drain.waits(12.0)
    drain.departed(20.0, queue_is_empty=False)
    assert drain.per_second(22.0) == 0.5


def test_a_departure_that_finds_nobody_waiting_ends_the_measurement() -> None:
    drain = drained(range(1, 11))
    drain.departed(11.0, queue_is_empty=True)
    assert drain.per_second(11.0) is None
    drain.waits(50.0)
    for number in range(ENOUGH):
        drain.departed(51.0 + number, queue_is_empty=False)
    assert drain.per_second(58.0) == 1.0


def test_departures_at_the_moment_when_the_line_formed_are_no_rate() -> None:
    assert drained([5.0] * 100, since=5.0).per_second(5.0) is None


@pytest.mark.parametrize("batch", [16, WINDOW, 4 * WINDOW])
@pytest.mark.parametrize("batches", [1, 2, 3, 10])
def test_a_batch_that_ends_as_one_took_as_long_as_it_ran(batch: int, batches: int) -> None:
    times = [5.0 * number for number in range(1, batches + 1) for _ in range(batch)]
    assert drained(times).per_second(times[-1]) == pytest.approx(batch / 5.0)


@pytest.mark.parametrize(("before_s", "after_s"), [(1.0, 0.01), (0.01, 1.0)])
def test_a_fleet_that_became_faster_or_slower_shows_soon(before_s: float, after_s: float) -> None:
    before = [number * before_s for number in range(1, 1001)]
    after = [before[-1] + number * after_s for number in range(1, 1001)]
    assert drained(before + after).per_second(after[-1]) == pytest.approx(1 / after_s, rel=0.1)


def foretold_and_waited(slots: int, service_s: tuple[float, float]) -> list[tuple[float, float]]:
    """A queue before ``slots``, after an hour with one request only; half as many again come as can be
    served. What each was told when it began to wait, and how long it did."""
    choose = random.Random(5)
    between_s = sum(service_s) / 2 / slots / 1.5
    arrivals = deque(3600.0 + number * between_s for number in range(40 + 20 * slots))
    drain = DrainRate()
    ends, queue, seen = [4.0], deque[tuple[float, float | None]](), list[tuple[float, float]]()
    while arrivals or queue:
        if ends and (not arrivals or ends[0] <= arrivals[0]):
            now = heapq.heappop(ends)
            drain.departed(now, queue_is_empty=not queue)
            if queue:
                since, foretold = queue.popleft()
                heapq.heappush(ends, now + choose.uniform(*service_s))
                seen += [] if foretold is None else [(foretold, now - since)]
        elif len(ends) < slots:
            heapq.heappush(ends, arrivals.popleft() + choose.uniform(*service_s))
        else:
            now = arrivals.popleft()
            rate = drain.per_second(now)
            drain.waits(now)
            queue.append((now, None if rate is None else (len(queue) + 1) / rate))
    return seen


@pytest.mark.parametrize("slots", [1, 16, 128])
@pytest.mark.parametrize("service_s", [(5.0, 5.0), (1.0, 5.0)], ids=["equal", "unequal"])
def test_the_wait_foretold_is_about_the_wait_that_comes(slots: int, service_s: tuple[float, float]) -> None:
    seen = foretold_and_waited(slots, service_s)
    assert len(seen) > 5 * slots
    assert 0.75 < median(foretold / waited for foretold, waited in seen) < 1.33
    # No client that would have been served within ten seconds is sent away for a minute.
    assert not [foretold for foretold, waited in seen if waited <= 10.0 and foretold > 60.0]
