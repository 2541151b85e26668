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
    assert "drafted tokens hold" in guard.reason


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


def seen(guard: Guard, steps: int, period: int) -> list[tuple[int, int]]:
    """Depth and drafts at each step of a text that says the same every ``period`` tokens, or never, if that
    is 0; its drafts go on as if it did every 7."""
    text, found = [0], []
    for _ in range(steps):
        found.append((guard.depth, guard.drafts))
        draft = [(len(text) + ahead) % 7 for ahead in range(guard.drafts)]
        if guard.drafts:
            guard.offered("r", text, draft)
        draft = draft[: guard.depth]
        for token in [*draft, None]:
            text.append(len(text) % period if period else -len(text))
            if token != text[-1]:
                break
        guard.stepped(1, 1 + len(draft), 1 + (1 + len(draft)) / 8)
    return found


def test_with_hindsight_a_text_that_repeats_itself_has_the_full_depth_without_a_try_that_checks() -> None:
    found = seen(Guard(GuardPolicy.with_hindsight(4)), 4 * WINDOW, period=7)
    assert found[:WINDOW] == [(0, 4)] * WINDOW
    assert found[-1] == (4, 4)
    assert {depth for depth, _ in found} == {0, 4}


def test_with_hindsight_nothing_is_ever_checked_of_a_text_that_does_not() -> None:
    found = seen(Guard(GuardPolicy.with_hindsight(4)), 40 * WINDOW, period=0)
    assert {depth for depth, _ in found} == {0}
    assert sum(drafts > 0 for _, drafts in found) < 0.25 * len(found)


def test_with_hindsight_a_text_that_begins_to_repeat_itself_is_seen_within_a_pause() -> None:
    policy = GuardPolicy.with_hindsight(4)
    guard = Guard(policy)
    seen(guard, 40 * WINDOW, period=0)
    found = seen(guard, (policy.longest_pause + 3) * WINDOW, period=7)
    assert found[-1] == (4, 4)
