"""The normal form in which texts are embedded and compared."""

from __future__ import annotations

import pytest

from serve_app.cache.normal import VERSION, Normaliser, load_normaliser, vectors_of
from serve_app.embedding import EmbedderInfo


@pytest.fixture(scope="module")
def normal() -> Normaliser:
    return load_normaliser()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is an NDA?", "What is an non-disclosure agreement?"),
        ("explain ETFs to me", "explain exchange-traded funds to me"),
        ("k8s pod restarts", "Kubernetes pod restarts"),
        ("how do i calcualte a mean", "how do i calculate a mean"),
        ("wich ports are open", "which ports are open"),
        ("shuold i recieve a letter", "should i receive a letter"),
    ],
)
def test_abbreviations_get_their_long_form_and_errors_are_put_right(
    normal: Normaliser, text: str, expected: str
) -> None:
    assert normal(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "How do I delete my account?",
        "cat /home/vpn/nda.txt",
        "what does `teh` do",
        'the word "teh"',
        "--dns 1.1.1.1",
        "ira says hello",
        "where is the us office",
        "form and from",
        "Où est le siège ?",
        "order AB-VPN-12",
        "vpn.example.org",
    ],
)
def test_what_is_no_abbreviation_and_no_error_stays(normal: Normaliser, text: str) -> None:
    assert normal(text) == text


@pytest.mark.parametrize("text", ["What is an NDA?", "shuold i use a VPN with k8s"])
def test_a_normal_form_is_its_own_normal_form(normal: Normaliser, text: str) -> None:
    assert normal(normal(text)) == normal(text)


def test_a_long_text_is_left_alone(normal: Normaliser) -> None:
    text = "VPN " * 2_000
    assert normal(text) == text


def test_vectors_of_another_normal_form_have_a_name_of_their_own() -> None:
    embedder = EmbedderInfo("minilm", 384, 256, "minilm", "int8")
    assert vectors_of(embedder) == f"minilm:normal-{VERSION}"
    assert vectors_of(embedder) != embedder.name
