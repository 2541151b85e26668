"""What is seen of an answer without a judge."""

from __future__ import annotations

import pytest

from serve_app.feedback.captured import Content
from serve_app.feedback.traits import language_of, traits_of


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I\u2019m sorry, but that is not possible.",
        "I cannot assist with this request.",
        "As an AI language model, I have no opinion.",
        "Tut mir leid, das geht nicht.",
        "Ich kann Ihnen bei dieser Anfrage leider nicht helfen.",
        "Je ne peux pas répondre à cette question.",
        "Lo siento, no tengo esa información.",
    ],
)
def test_a_refusal_is_seen(text: str) -> None:
    assert traits_of("how?", text).refuses


@pytest.mark.parametrize(
    "text",
    [
        "Paris is the capital of France.",
        "You can say: I'm happy to help you.",
        "x" * 300 + " I'm sorry, but this comes late.",
        "",
    ],
)
def test_an_answer_is_no_refusal(text: str) -> None:
    assert not traits_of("how?", text).refuses


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The capital of France is Paris, and it is on the Seine.", "en"),
        ("Die Hauptstadt von Frankreich ist Paris, und sie liegt an der Seine.", "de"),
        ("La capitale de la France est Paris et elle est sur la Seine, dans le nord.", "fr"),
        ("Столица Франции — Париж.", "cyrillic"),
        ("法国的首都是巴黎。", "han"),
        ("フランスの首都はパリです。", "japanese"),
        ("Paris", None),
        ("42 + 1 = 43", None),
        ("```python\nfor the of in is to and that\n```", None),
    ],
)
def test_a_language_is_known_where_enough_is_said(text: str, language: str | None) -> None:
    assert language_of(text) == language


def test_another_language_counts_only_where_both_are_known() -> None:
    english = "What is the capital of France, and is it on the Seine?"
    german = "Die Hauptstadt von Frankreich ist Paris, und sie liegt an der Seine."
    assert traits_of(english, german).other_language
    assert not traits_of(german, german).other_language
    assert not traits_of(english, "Paris").other_language


def test_the_question_is_the_last_thing_that_the_user_said() -> None:
    parts = [{"type": "text", "text": "second"}, {"type": "image_url"}]
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "so"},
    ]
    assert Content(request={"messages": messages}).question == "second\n"
    assert Content(request={"prompt": "say"}).question == "say"
    assert Content(request={"messages": []}).question == ""
