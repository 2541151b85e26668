"""What the guards together object to, and what they let through."""

from __future__ import annotations

from itertools import product

import pytest
from guard_samples import OBJECTED, ODD_TEXTS, SHARED

from serve_app.cache.guards.contract import Guard, Text, analyse
from serve_app.cache.guards.lists import WordLists, load_word_lists
from serve_app.cache.guards.registry import GUARDS, Guards


@pytest.fixture(scope="module")
def lists() -> WordLists:
    return load_word_lists()


@pytest.fixture(scope="module")
def guards(lists: WordLists) -> Guards:
    return Guards(lists)


def objecting(guards: Guards, one: str, other: str) -> list[str]:
    return [name for name, objects in guards.evidence(analyse(one), analyse(other)).items() if objects]


@pytest.mark.parametrize(("guard", "one", "other"), OBJECTED)
def test_a_guard_objects_to_its_kind_of_difference(guards: Guards, guard: str, one: str, other: str) -> None:
    assert guard in objecting(guards, one, other)


@pytest.mark.parametrize(("one", "other"), SHARED)
def test_no_guard_objects_to_a_rewording(guards: Guards, one: str, other: str) -> None:
    assert objecting(guards, one, other) == []


PAIRS = [*((one, other) for _, one, other in OBJECTED), *SHARED]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_an_objection_does_not_depend_on_which_text_came_first(guards: Guards, one: str, other: str) -> None:
    assert objecting(guards, one, other) == objecting(guards, other, one)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_text_may_answer_itself(guards: Guards, one: str, other: str) -> None:
    assert objecting(guards, one, one) == []
    assert objecting(guards, other, other) == []


@pytest.mark.parametrize(
    ("one", "other"), [*product(ODD_TEXTS, ["", "a plain text", "not 1 by 日本 before"])]
)
def test_every_text_can_be_compared(guards: Guards, one: str, other: str) -> None:
    assert set(guards.evidence(analyse(one), analyse(other))) == set(GUARDS)
    assert set(guards.evidence(analyse(other), analyse(one))) == set(GUARDS)


def test_the_first_guard_that_objects_names_the_objection(guards: Guards) -> None:
    one, other = analyse("Can 3 cats swim?"), analyse("Can't 4 cats swim?")
    assert guards.objection(one, other) == "numbers"
    assert guards.objection(one, one) is None


def test_later_guards_are_not_asked_after_an_objection(lists: WordLists) -> None:
    asked = []

    def make(name: str, answer: bool) -> Guard:
        def objects(a: Text, b: Text) -> bool:
            asked.append(name)
            return answer

        return objects

    makers = {
        "calm": lambda lists: make("calm", False),
        "strict": lambda lists: make("strict", True),
        "late": lambda lists: make("late", True),
    }
    guards = Guards(lists, makers)
    assert guards.objection(analyse("a"), analyse("b")) == "strict"
    assert asked == ["calm", "strict"]
    assert guards.evidence(analyse("a"), analyse("b")) == {"calm": False, "strict": True, "late": True}


@pytest.mark.parametrize(
    ("form", "guard"), [("{}", "numbers"), ("key_{}", "identifiers"), ("in Town{}ville", "names")]
)
def test_long_lists_of_different_things_differ(guards: Guards, form: str, guard: str) -> None:
    one = ", ".join(form.format(number) for number in range(1_000, 1_200))
    other = ", ".join(form.format(number) for number in range(2_000, 2_200))
    assert guard in objecting(guards, one, other)
