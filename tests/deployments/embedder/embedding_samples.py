"""Texts of every kind that an encoder meets, and what the encoders need."""

from __future__ import annotations

import importlib.util

import pytest

QUESTIONS = (
    "How do I get back into my account without the old phone?",
    "What is the capital of France?",
    "what is the capital of france",
    "Which river runs through Vienna?",
    "Explain in two sentences why the sky is blue at noon and red in the evening.",
    "Write a haiku about the sea.",
    "Is 7,919 a prime number?",
    "Convert 3 h 25 min to seconds.",
    "Why did the build fail with `undefined reference to main`?",
    "def add(a, b):\n    return a + b",
    "SELECT name FROM users WHERE id = 3;",
    "Hello",
    "ok",
    "2 + 2 = 4",
    "Give me a recipe for bread with rye, caraway and no yeast, for an oven that only reaches 200 °C.",
    "Translate “good night” to Finnish.",
    "Wie spät ist es in Zürich?",
    "¿Dónde está la biblioteca?",
    "Où est la gare la plus proche ?",
    "Сколько стоит билет до Минска?",
    "今日の天気はどうですか",
    "북쪽은 어디입니까?",
    "كيف حالك؟",
    "मौसम कैसा है",
)
ODD = (
    "",
    " ",
    "\n\t \u00a0",
    "naïve café, nai\u0308ve cafe\u0301",
    "👩‍👩‍👧‍👦 and a flag 🇫🇮",
    "zero\u200bwidth \u202eright to left\u202c \ufeff",
    "nul \x00 bell \x07",
    "ﬁ ligature, ½, Ⅷ, ｆｕｌｌ ｗｉｄｔｈ",
    "[CLS] [SEP] [PAD] [MASK] <s> </s>",
    "z̷a̴l̵g̶o̸",
    "a" * 300,
    "word " * 400,
)
TEXTS = QUESTIONS + ODD
LONE_SURROGATE = "half a \ud83d pair"


def require_onnx() -> None:
    """Skip the test where the backend's packages are not installed."""
    for package in ("onnxruntime", "onnx"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
