"""A bounded memory of embeddings that counts what it answered."""

from __future__ import annotations

import random

import pytest

from deployments.embedder import RecentEmbeddings
from serve_app.embedding import Embedding


def embedding(number: int) -> Embedding:
    return Embedding(bytes(4), number, False)


def test_hits_and_misses_are_counted() -> None:
    recent = RecentEmbeddings(2)
    assert recent.get("a") is None
    recent.put("a", embedding(1))
    assert recent.get("a") == embedding(1)
    assert recent.get("A") is None
    assert (recent.hits, recent.misses, len(recent)) == (1, 2, 1)


def test_what_was_unused_for_longest_goes_first() -> None:
    recent = RecentEmbeddings(2)
    recent.put("a", embedding(1))
    recent.put("b", embedding(2))
    recent.get("a")
    recent.put("c", embedding(3))
    assert [recent.get(text) for text in "abc"] == [embedding(1), None, embedding(3)]


def test_the_same_text_takes_one_place() -> None:
    recent = RecentEmbeddings(2)
    for number in range(5):
        recent.put("a", embedding(number))
    assert (len(recent), recent.get("a")) == (1, embedding(4))


@pytest.mark.parametrize("capacity", [0, 1, 7])
def test_it_never_holds_more_than_its_capacity(capacity: int) -> None:
    recent = RecentEmbeddings(capacity)
    order = random.Random(1)
    for number in range(500):
        text = str(order.randrange(20))
        if recent.get(text) is None:
            recent.put(text, embedding(number))
        assert len(recent) <= capacity


def test_any_text_can_be_a_key() -> None:
    recent = RecentEmbeddings(4)
    for text in ("", "\ud800", "x" * 100_000):
        recent.put(text, embedding(1))
    assert recent.get("\ud800") == embedding(1)
    assert len(recent) == 3


def test_what_one_had_embedded_is_not_remembered_for_another() -> None:
    recent = RecentEmbeddings(4)
    recent.put("a", embedding(1), "one")
    assert recent.get("a", "other") is None
    assert recent.get("a") is None
    assert recent.get("\0a", "one") is None
    assert recent.get("a", "one") == embedding(1)
