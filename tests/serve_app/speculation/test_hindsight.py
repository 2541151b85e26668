"""What every depth would have given, from drafts that were not checked."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from serve_app.speculation import Drafting, Hindsight

MOST = 4
Text = Sequence[int]


def draft_at(text: Text, place: int, seed: int) -> list[int]:
    """Of one to four tokens, right up to some place, and the same for every caller."""
    choose = random.Random(seed * 100_003 + place)
    count, held = choose.choice((0, 2, MOST)), choose.choice((0, 0, 1, 2, MOST, MOST))
    right = text[place : place + count]
    return [token if number < held else -1 for number, token in enumerate(right)]


def held(text: Text, place: int, draft: Sequence[int]) -> int:
    count = 0
    while count < len(draft) and draft[count] == text[place + count]:
        count += 1
    return count


def spoken(text: Text, seed: int, depth: int, found: Hindsight, request: str = "r") -> Drafting:
    """An engine that checks ``depth`` tokens says the text; what its steps gave."""
    place, given = 1, Drafting()
    while place < len(text) - MOST:
        draft = draft_at(text, place, seed)
        found.offered(request, text[:place], draft)
        accepted = held(text, place, draft[:depth])
        given += Drafting(1, min(depth, len(draft)), accepted)
        place += accepted + 1
    return given


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_without_checking_every_depth_is_known_as_if_it_had_been_in_use(depth: int) -> None:
    text = list(range(2000))
    found = Hindsight(MOST)
    spoken(text, 1, 0, found)
    told = found.take()[depth - 1]
    given = spoken(text, 1, depth, Hindsight(MOST))
    assert told.steps == pytest.approx(given.steps, abs=MOST)
    assert told.drafted == pytest.approx(given.drafted, abs=2 * MOST)
    assert told.accepted == pytest.approx(given.accepted, abs=2 * MOST)


@pytest.mark.parametrize("used", [1, 2, 4])
def test_the_depth_in_use_is_counted_as_it_was(used: int) -> None:
    found = Hindsight(MOST)
    given = spoken(list(range(2000)), 2, used, found)
    told = found.take()[used - 1]
    assert told.steps == pytest.approx(given.steps, abs=MOST)
    assert told.accepted == pytest.approx(given.accepted, abs=2 * MOST)


@pytest.mark.parametrize("used", [1, 4])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_from_a_copy_every_depth_is_known_whichever_is_in_use(used: int, depth: int) -> None:
    """The drafts inside a step that kept several tokens were never made: the rest of the last one stands for
    them."""
    text, found, place = list(range(1000)), Hindsight(MOST), 1
    while place < len(text) - MOST:
        found.offered("r", text[:place], text[place : place + MOST])
        place += used + 1
    assert found.take()[depth - 1].accepted_a_step == pytest.approx(depth, rel=0.3)


def test_a_draft_is_known_as_soon_as_it_is_wrong_or_all_there() -> None:
    found, text = Hindsight(MOST), list(range(9))
    found.offered("wrong", text[:3], [-1, 4, 5, 6])
    found.offered("wrong", text[:4], [])
    found.offered("short", text[:3], [3])
    found.offered("short", text[:4], [])
    found.offered("right so far", text[:3], [3, 4, 5, 6])
    found.offered("right so far", text[:4], [])
    assert found.take()[0] == Drafting(2, 2, 1)


def test_requests_are_told_apart() -> None:
    found = Hindsight(MOST)
    good, bad = list(range(50)), list(range(50, 100))
    for place in range(1, 40):
        found.offered("good", good[:place], good[place : place + 2])
        found.offered("bad", bad[:place], [-1, -1])
    two = found.take()[1]
    assert two.accepted == pytest.approx(2 * (40 - MOST) / 3, abs=4)
    assert two.steps == pytest.approx((40 - MOST) * (1 + 1 / 3), abs=4)


def test_a_request_that_is_heard_of_no_more_is_forgotten() -> None:
    found = Hindsight(MOST)
    found.offered("r", [1, 2], [3, 4])
    found.take()
    found.take()
    found.offered("r", list(range(40)), [3])  # another one of that name: nothing is owed to the first
    assert found.take()[0].steps == 0


def test_a_draft_longer_than_the_deepest_is_cut() -> None:
    found, text = Hindsight(2), list(range(9))
    for place in range(1, 9):
        found.offered("r", text[:place], text[place:])
    assert found.take()[1].accepted_a_step == 2.0
