"""Without a verifier: near texts hit if they are reworded, not if they are lightly edited."""

from __future__ import annotations

import pytest

from serve_app.cache.decision import measured_alone, reworded
from serve_app.cache.decision.rewording import Alone, letters, likeness
from serve_app.cache.guards.lists import load_word_lists
from serve_app.cache.guards.registry import Guards

ALONE = Alone(0.93, 0.45)


def reason(one: str, other: str, similarity: float = 0.95) -> str | None:
    decision = reworded(Guards(load_word_lists()), ALONE)
    return decision.judge(decision.read(one), decision.read(other), similarity).reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("¿Cómo borro una conversación de WhatsApp?", "¿Cómo borro todas las conversaciones de WhatsApp?"),
        ("Kayıtlı adreslerimin hepsini silmek istiyorum", "Kayıtlı adreslerimden birini silmek istiyorum"),
        ("支付宝的钱转到银行卡手续费多少？", "银行卡的钱转到支付宝手续费多少？"),
        ("Come faccio a bloccare la mia carta?", "Come faccio a sbloccare la mia carta?"),
    ],
)
def test_a_light_edit_is_refused_in_any_language(one: str, other: str) -> None:
    assert reason(one, other) is not None
    assert reason(other, one) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Ich hab mein Passwort für den Kundenbereich vergessen, wie komm ich da wieder rein?",
            "Kundenkonto: Kennwort nicht mehr bekannt – was tun?",
        ),
        ("Wo finde ich meine Rechnung?", "wo finde ich meine rechnung"),
    ],
)
def test_a_rewording_and_the_same_letters_hit(one: str, other: str) -> None:
    assert reason(one, other) is None
    assert reason(one, other, similarity=0.92) == "similarity"


def test_likeness_is_symmetric_and_between_none_and_all() -> None:
    texts = ("", "a", "abc", "支付宝", "the quick fox", "quick the fox")
    for one in texts:
        for other in texts:
            assert 0.0 <= likeness(one, other) <= 1.0
            assert likeness(one, other) == likeness(other, one)
    assert likeness("abcdef", "abcdef") == 1.0
    assert likeness("abcdef", "uvwxyz") == 0.0
    assert letters("A b-C 1!") == "abc1"


def test_only_measured_embedders_have_thresholds() -> None:
    assert measured_alone("intfloat/multilingual-e5-small") == ALONE
    assert measured_alone("/models/intfloat--multilingual-e5-small/") == ALONE
    assert measured_alone("sentence-transformers/all-MiniLM-L6-v2") is None
