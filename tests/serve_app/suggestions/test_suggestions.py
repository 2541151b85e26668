"""Suggestions come with evidence, and only where there is enough of it."""

from __future__ import annotations

from typing import Any

from serve_app.suggestions.contract import ENOUGH, Observed, Suggestion
from serve_app.suggestions.registry import suggestions_of

RULES_TEXT = " ".join(f"Rule {number}: always answer politely." for number in range(60))


def a_capture(number: int = 0, prompt: str = "hi", **changed: Any) -> dict[str, Any]:
    known = {"output_tokens": 200, "total_ms": 900.0, "finish_reason": "stop", **changed.pop("known", {})}
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": f"question {number}"}]
    asked = {"messages": messages, **changed}
    return {"tenant": "acme", "model": "big", "request": known, "asked": asked}


def said(score: float, cache: str = "semantic") -> dict[str, Any]:
    return {"tenant": "acme", "score": score, "request": {"model": "big", "cache": cache}}


def names(**observed: Any) -> list[str]:
    return [each.name for each in suggestions_of(Observed(**observed))]


def only(**observed: Any) -> Suggestion:
    (found,) = suggestions_of(Observed(**observed))
    return found


def test_a_prompt_that_differs_early_is_found_with_what_it_costs() -> None:
    captures = [a_capture(number, f"It is day {number}. {RULES_TEXT}") for number in range(ENOUGH)]
    found = only(captures=captures)
    assert (found.name, found.about) == ("early_variation", "acme / big")
    assert f"{ENOUGH} prompts" in found.evidence
    assert "tokens of each prompt" in found.effect


def test_a_prompt_that_differs_late_is_left_alone() -> None:
    captures = [a_capture(number, f"{RULES_TEXT} It is day {number}.") for number in range(ENOUGH)]
    assert names(captures=captures) == []


def test_prompts_that_have_nothing_in_common_are_left_alone() -> None:
    captures = [a_capture(number, f"{number} " * 600) for number in range(ENOUGH)]
    assert names(captures=captures) == []


def test_max_tokens_that_no_answer_uses_are_named_with_a_better_number() -> None:
    found = only(captures=[a_capture(number, max_tokens=4096) for number in range(ENOUGH)])
    assert found.name == "unused_max_tokens"
    assert "512" in found.advice
    assert "4096" in found.advice


def test_max_tokens_that_cut_an_answer_are_left_alone() -> None:
    captures = [a_capture(number, max_tokens=4096) for number in range(ENOUGH)]
    captures += [a_capture(99, max_tokens=200, known={"finish_reason": "length"})]
    assert names(captures=captures) == []


def test_short_answers_of_a_model_suggest_a_smaller_one_unless_people_dislike_them() -> None:
    captures = [a_capture(number, known={"output_tokens": 3}) for number in range(ENOUGH)]
    assert names(captures=captures) == ["larger_than_needed"]
    disliked = [said(0.0, "miss") for _ in range(5)]
    assert names(captures=captures, feedback=disliked) == []


def test_too_little_says_nothing() -> None:
    captures = [
        a_capture(number, max_tokens=4096, known={"output_tokens": 3}) for number in range(ENOUGH - 1)
    ]
    assert names(captures=captures) == []
    assert names() == []


def test_the_threshold_is_judged_by_what_people_say_of_hits() -> None:
    counters = {"semantic": 50, "misses": 100, "near_misses": 60}
    right = [said(1.0) for _ in range(ENOUGH)]
    assert names(feedback=right, cache=counters) == ["strict_threshold"]
    assert names(feedback=right, cache={**counters, "near_misses": 3}) == []
    assert names(feedback=[said(0.0) for _ in range(ENOUGH)], cache=counters) == ["loose_threshold"]
    assert names(feedback=right[:3], cache=counters) == []


def test_no_suggestion_quotes_a_text() -> None:
    captures = [
        a_capture(number, f"secret {number}. {RULES_TEXT}", max_tokens=4096) for number in range(ENOUGH)
    ]
    for found in suggestions_of(Observed(captures=captures)):
        assert "secret" not in f"{found}"
        assert "politely" not in f"{found}"
