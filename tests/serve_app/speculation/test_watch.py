"""The guard, fed with single steps as a scheduler feeds it."""

from __future__ import annotations

import random

from serve_app.speculation import Guard, GuardPolicy

POLICY = GuardPolicy(most=4)
WINDOW = POLICY.window_steps


def run(guard: Guard, steps: int, acceptance: float, seed: int = 0) -> list[int]:
    """The depth at each step of one request whose every step has a draft; a step takes 1 + tokens / 8."""
    choose, depths = random.Random(seed), []
    for _ in range(steps):
        depth = guard.depth
        depths.append(depth)
        accepted = 0
        while accepted < depth and choose.random() < acceptance:
            accepted += 1
        if depth:
            guard.judged(depth, accepted)
        guard.stepped(1, 1 + depth, 1 + (1 + depth) / 8)
    return depths


def test_nothing_is_drafted_in_the_first_window() -> None:
    assert set(run(Guard(POLICY), WINDOW, 1.0)) == {0}


def test_text_that_can_be_drafted_soon_has_the_full_depth() -> None:
    guard = Guard(POLICY)
    assert run(guard, 4 * WINDOW, 0.95)[-1] == POLICY.most
    assert not guard.is_trying
    assert "acceptance" in guard.reason


def test_text_that_cannot_is_drafted_in_tries_alone() -> None:
    guard = Guard(POLICY)
    depths = run(guard, 40 * WINDOW, 0.0)
    assert set(depths) == {0, 1}
    assert depths.count(1) <= 4 * WINDOW


def test_text_that_turns_bad_loses_its_drafts_within_two_windows() -> None:
    guard = Guard(POLICY)
    run(guard, 10 * WINDOW, 0.95)
    assert guard.depth == POLICY.most
    run(guard, 2 * WINDOW, 0.02, seed=1)
    assert guard.depth == 0


def test_a_step_says_whether_the_depth_changed() -> None:
    guard = Guard(POLICY)
    assert [guard.stepped(1, 1, 1.0) for _ in range(WINDOW)] == [False] * (WINDOW - 1) + [True]
    assert guard.is_trying


def test_steps_of_prompts_alone_count_for_nothing() -> None:
    guard = Guard(POLICY)
    assert not any(guard.stepped(0, 512, None) for _ in range(10 * WINDOW))
    assert guard.depth == 0
