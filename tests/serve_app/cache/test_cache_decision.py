"""A near entry answers only when no step objects; the first objection is the reason."""

from __future__ import annotations

import math

import pytest

from serve_app.cache.decision import Decision, Finding, Pair, Verdict, guarded, similarity_only
from serve_app.cache.decision.steps import GuardStep, HasWords, MeasuredLanguage, SimilarEnough
from serve_app.cache.guards.lists import load_word_lists
from serve_app.cache.guards.registry import Guards

PLAIN = Decision((SimilarEnough(), HasWords()), 0.9)


class Objects:
    """A step of its own, which also measures."""

    name = "always"

    def __call__(self, pair: Pair) -> Finding:
        return Finding(self.name, 0.25)


class Measures:
    name = "measured"

    def __call__(self, pair: Pair) -> Finding:
        return Finding(score=0.75)


def judge(
    decision: Decision = PLAIN,
    text: str = "hi",
    candidate: str = "hello",
    similarity: float = 0.95,
    threshold: float | None = None,
) -> Verdict:
    return decision.judge(decision.read(text), decision.read(candidate), similarity, threshold)


@pytest.mark.parametrize(
    ("similarity", "threshold", "reason"),
    [
        (0.95, 0.9, None),
        (0.9, 0.9, None),
        (math.nextafter(0.9, 0), 0.9, "similarity"),
        (0.5, 0.9, "similarity"),
        (-1.0, 0.0, "similarity"),
        (0.0, 0.0, None),
        (1.0, 1.0, None),
        (0.9999, 1.0, "similarity"),
        (math.nan, 0.0, "similarity"),
        (0.89, None, "similarity"),
        (0.91, None, None),
    ],
)
def test_a_candidate_must_reach_the_threshold(
    similarity: float, threshold: float | None, reason: str | None
) -> None:
    verdict = judge(similarity=similarity, threshold=threshold)
    assert (verdict.reason, verdict.hit) == (reason, reason is None)


@pytest.mark.parametrize("text", ["", " ", "?!", "...", "👍", "\n---\n", "¿?"])
def test_a_text_without_words_is_like_no_other(text: str) -> None:
    assert judge(text=text, similarity=1.0).reason == "no_words"
    assert judge(candidate=text, similarity=1.0).reason == "no_words"


@pytest.mark.parametrize("text", ["a", "7", "東", "é", "?x?", "½"])
def test_one_letter_or_digit_of_any_script_makes_a_text(text: str) -> None:
    assert judge(text=text).hit


def test_the_first_objection_is_the_reason() -> None:
    assert judge(text="?!", similarity=0.1).reason == "similarity"
    assert judge(Decision((HasWords(), SimilarEnough()), 0.9), "?!", similarity=0.1).reason == "no_words"


def test_steps_can_be_added_without_a_change_to_the_decision() -> None:
    verdict = judge(Decision((SimilarEnough(), Measures(), Objects()), 0.9))
    assert verdict == Verdict("always", {"measured": 0.75, "always": 0.25})


def test_no_step_after_an_objection_is_asked() -> None:
    assert judge(Decision((Objects(), Measures()), 0.9)).scores == {"always": 0.25}


def test_a_guards_objection_carries_its_own_name() -> None:
    decision = guarded(Guards(load_word_lists()))
    verdict = judge(decision, "How many legs has a spider got?", "How many legs has a spider not got?", 0.99)
    assert verdict.reason == "negation"
    assert judge(decision, "Pay 20 euros", "Pay 30 euros", 0.99).reason == "numbers"
    assert judge(decision, "What's a spider?", "What is a spider?", 0.99).hit


def test_one_cosine_threshold_is_fooled_by_what_a_guard_sees() -> None:
    assert judge(similarity_only(), "Pay 20 euros", "Pay 30 euros", 0.99).hit


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("How do I reset my password?", "How can I reset my password?", None),
        (
            "Wie setze ich mein Passwort zurück?",
            "Wie kann ich mein Passwort zurücksetzen?",
            "unmeasured_language",
        ),
        ("reset my password", "Wie setze ich mein Passwort zurück?", "unmeasured_language"),
    ],
)
def test_texts_in_a_language_that_was_not_measured_do_not_hit(
    one: str, other: str, expected: str | None
) -> None:
    decision = PLAIN.behind(MeasuredLanguage(["en"], load_word_lists()))
    assert judge(decision, one, other, 0.99).reason == expected
    assert judge(decision, other, one, 0.99).reason == expected


def test_a_language_that_the_settings_name_may_hit() -> None:
    decision = PLAIN.behind(MeasuredLanguage(["en", "de"], load_word_lists()))
    assert judge(decision, "Wie geht es dem Hund?", "Wie geht es der Katze?", 0.99).hit


GUARDED = Guards(load_word_lists())
SCORED = Decision((SimilarEnough(), GuardStep(), Measures()), 0.75, GUARDED)
ONE_WORD = ("How do I archive a Slack workspace?", "How do I shelve a Slack workspace?")


def test_an_unsure_objection_waits_for_the_later_steps_where_the_model_can_be_asked() -> None:
    verdict = judge(SCORED.asking(), *ONE_WORD)
    assert (verdict.reason, verdict.unsure) == ("edit", True)
    assert verdict.scores == {"measured": 0.75}
    assert not verdict.hit


def test_an_unsure_objection_ends_the_decision_where_nobody_can_be_asked() -> None:
    assert judge(SCORED, *ONE_WORD) == Verdict("edit", unsure=False)


def test_a_later_objection_makes_an_unsure_one_sure() -> None:
    decision = Decision((SimilarEnough(), GuardStep(), Objects()), 0.75, GUARDED).asking()
    verdict = judge(decision, *ONE_WORD)
    assert (verdict.reason, verdict.unsure) == ("always", False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Can I store opened soy sauce?", "Must I store opened soy sauce?"),
        ("Does the Z6 II have two card slots?", "Does the Z6 have two card slots?"),
        ("Can I pay 20 euros in cash?", "Can I pay 30 euros in cash?"),
    ],
)
def test_the_model_is_not_asked_about_what_the_guards_are_sure_of(one: str, other: str) -> None:
    verdict = judge(SCORED.asking(), one, other)
    assert verdict.reason is not None
    assert not verdict.unsure
