"""The language of a text, from its script and its small words."""

from __future__ import annotations

import pytest

from serve_app.cache.guards.contract import analyse
from serve_app.cache.guards.lists import WordLists, load_word_lists
from serve_app.cache.guards.tongue import ENGLISH, UNKNOWN, language_of


@pytest.fixture(scope="module")
def lists() -> WordLists:
    return load_word_lists()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How do I reset my password?", "en"),
        ("reset password iphone", "en"),
        ("E24 Bosch", "en"),
        ("", "en"),
        ("Wie setze ich mein Passwort zurück?", "de"),
        ("Comment changer le mot de passe de mon compte ?", "fr"),
        ("¿Cómo cambio la contraseña de mi cuenta?", "es"),
        ("如何更改密码", "zh"),
        ("パスワードの変更方法", "ja"),
        ("Как изменить пароль?", "ru"),
    ],
)
def test_a_text_shows_its_language(lists: WordLists, text: str, language: str) -> None:
    assert language_of(analyse(text), lists) == language


@pytest.mark.parametrize("text", ["Elektroniczne potwierdzenie przelewu", "Pasaport yenileme ücreti"])
def test_a_text_of_words_that_english_lacks_is_not_english(lists: WordLists, text: str) -> None:
    assert language_of(analyse(text), lists) != ENGLISH


def test_a_script_without_a_language_of_its_own_is_unknown(lists: WordLists) -> None:
    assert language_of(analyse("ආයුබෝවන් කොහොමද"), lists) == UNKNOWN
