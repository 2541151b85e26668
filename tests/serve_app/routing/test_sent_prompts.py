"""Each prompt that was sent is told once in a round, for some rounds, within a bound."""

from __future__ import annotations

from serve_app.routing.prompt import NAME_BYTES
from serve_app.routing.sent_prompts import KEPT_ROUNDS, MOST_NAMES, SentPrompts, prompts_of


def names(*numbers: int) -> tuple[bytes, ...]:
    return tuple(number.to_bytes(NAME_BYTES) for number in numbers)


def test_a_prompt_is_told_as_it_was_sent() -> None:
    sent = SentPrompts()
    sent.add("m", "a", names(1, 2, 3))
    [[prompt]] = map(prompts_of, sent.close_round())
    assert (prompt.model, prompt.member, prompt.prefixes) == ("m", "a", names(1, 2, 3))


def test_a_prompt_that_is_sent_again_is_told_once_for_each_member() -> None:
    sent = SentPrompts()
    for member in "aba":
        sent.add("m", member, names(1, 2))
    [told] = sent.close_round()
    assert [prompt.member for prompt in prompts_of(told)] == ["a", "b"]


def test_rounds_are_told_until_all_have_asked_and_empty_ones_are_not() -> None:
    sent = SentPrompts()
    assert sent.close_round() == ()
    sent.add("m", "a", names(1))
    for _ in range(KEPT_ROUNDS):
        [(number, _)] = sent.close_round()
        assert number == 2
    assert sent.close_round() == ()


def test_what_is_beyond_the_bound_is_not_told() -> None:
    sent = SentPrompts()
    for number in range(0, 2 * MOST_NAMES, 64):
        sent.add("m", "a", names(*range(number, number + 64)))
    [told] = sent.close_round()
    assert sum(len(prompt.prefixes) for prompt in prompts_of(told)) == MOST_NAMES
    sent.add("m", "a", names(1))
    assert len(sent.close_round()) == 2, "a new round has room again"
