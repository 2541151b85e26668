"""A timeline records steps by the clock it was given."""

from __future__ import annotations

import pytest

from serve_app.request.timing import Step, Timeline


class Clock:
    """Nanoseconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * 1e6)


def fail_after(clock: Clock, milliseconds: float) -> None:
    clock.advance(milliseconds)
    raise KeyError("x")


def test_a_step_has_the_duration_of_its_block() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    clock.advance(1)
    with timeline.step("embed"):
        clock.advance(2.5)
    assert timeline.steps == [Step("embed", 1_001_000_000, 1_003_500_000)]
    assert timeline.steps[0].duration_ms == 2.5


def test_a_step_that_raises_is_recorded_and_raises_on() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    with pytest.raises(KeyError), timeline.step("lookup"):
        fail_after(clock, 3)
    assert [(step.name, step.duration_ms) for step in timeline.steps] == [("lookup", 3.0)]


def test_nested_steps_are_recorded_as_they_end() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    with timeline.step("outer"):
        clock.advance(1)
        with timeline.step("inner"):
            clock.advance(1)
        clock.advance(1)
    assert [(step.name, step.duration_ms) for step in timeline.steps] == [("inner", 1.0), ("outer", 3.0)]


def test_a_step_can_be_added_after_it_began() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    began = clock()
    clock.advance(4)
    timeline.add("first_byte", began)
    assert timeline.steps == [Step("first_byte", began, began + 4_000_000)]


def test_elapsed_counts_from_the_start_of_the_timeline() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    assert timeline.elapsed_ms() == 0.0
    clock.advance(12.25)
    assert timeline.elapsed_ms() == 12.25
    assert timeline.start_ns == 1_000_000_000


def test_server_timing_lists_the_steps_in_order_in_milliseconds() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    for name, milliseconds in (("auth", 0.004), ("embed", 1.236), ("upstream", 1234.5)):
        with timeline.step(name):
            clock.advance(milliseconds)
    assert timeline.server_timing() == "auth;dur=0.00, embed;dur=1.24, upstream;dur=1234.50"


def test_server_timing_without_steps_is_empty() -> None:
    assert Timeline(Clock()).server_timing() == ""


def test_two_timelines_share_no_steps() -> None:
    clock = Clock()
    first, second = Timeline(clock), Timeline(clock)
    first.add("a", clock())
    assert second.steps == []
