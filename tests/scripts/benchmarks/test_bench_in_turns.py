"""A cost is the median of what two running servers differ by within a turn."""

from __future__ import annotations

from benchmarks.in_turns import Turn, cost_of
from benchmarks.layer import Level
from benchmarks.table import at_least, at_most


def level(ttft_ms: float, tokens_per_s: float, cpu_s: float) -> Level:
    return Level(ttft_ms, 0.0, 0.0, 0.0, tokens_per_s, cpu_s, 0.0)


def test_a_slow_moment_of_one_turn_does_not_count_as_a_cost() -> None:
    turns = [
        Turn(level(30.0, 3000, 0.3), level(29.0, 3000, 0.2)),
        Turn(level(80.0, 2000, 0.3), level(79.0, 2000, 0.2)),
        Turn(level(90.0, 2900, 0.3), level(30.0, 3000, 0.2)),
    ]
    throughput, ttft, cpu = cost_of("work", [turns], throughput=at_least(0.98), ttft=at_most(0.3))
    assert throughput.values == (1.0,)
    assert ttft.values == (1.0,)
    assert [round(value, 3) for value in cpu.values] == [1.5]
    assert (throughput.met, ttft.met) == (True, False)
