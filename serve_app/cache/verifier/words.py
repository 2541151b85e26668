"""A text as the verifier sees it: words, their weights and their vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.cache.guards.contract import MAX_CHARACTERS

Floats = NDArray[np.float32]

MAX_WORDS = 96
"""Words of a text's beginning that are compared. Like ``MAX_CHARACTERS`` it bounds a decision's time."""

LITTLE = 0.3
"""The weight of a function word: it shapes a question, but says little."""


class Tokenizer(Protocol):
    """The embedder's own tokenizer; ``tokenizers.Tokenizer`` is one."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding: ...


class Encoding(Protocol):
    """Token ids, and for each the word it belongs to (``None``: none) and its position in the text."""

    @property
    def ids(self) -> list[int]: ...
    @property
    def word_ids(self) -> list[int | None]: ...
    @property
    def offsets(self) -> list[tuple[int, int]]: ...


@dataclass(frozen=True, eq=False)
class Words:
    """The words of one text; ``n`` of them.

    ``weights`` [n]: the words' weights. ``is_content`` [n]: the word is no function word. ``vectors`` [n, d]:
    unit vectors of the words alone, without their context.

    Derived values are computed once: a stored text is compared with many questions.
    """

    texts: tuple[str, ...]
    weights: Floats
    is_content: NDArray[np.bool_]
    vectors: Floats

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def said(self) -> Sequence[tuple[str, float, bool]]:
        """Each word with its weight, and whether it is a content word."""
        return list(zip(self.texts, self.weights.tolist(), self.is_content.tolist(), strict=True))

    @cached_property
    def total_weight(self) -> float:
        return float(sum(self.weights.tolist()))

    @cached_property
    def distinct(self) -> frozenset[str]:
        return frozenset(self.texts)

    @cached_property
    def content(self) -> frozenset[str]:
        return frozenset(word for word, _, is_content in self.said if is_content)

    @cached_property
    def function(self) -> frozenset[str]:
        return self.distinct - self.content

    @cached_property
    def bigrams(self) -> frozenset[tuple[str, str]]:
        return frozenset(pairwise(self.texts))

    @cached_property
    def in_order(self) -> Sequence[str]:
        """All words, sorted."""
        return sorted(self.texts)

    @cached_property
    def digits(self) -> Sequence[str]:
        """The words that begin with a digit, sorted."""
        return [word for word in self.in_order if word[0].isdigit()]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The index of each word that occurs once, in the text's order."""
        counts = Counter(self.texts)
        return {word: index for index, word in enumerate(self.texts) if counts[word] == 1}


class WordReader:
    """Reads texts with the embedder's own tokenizer and token vectors.

    ``table`` [vocabulary, d] holds the embedder's input vectors. A word of several tokens has their mean.
    Rarity is ``log(1 + rank / 50)``, the rank being a token's id less ``first_rank``: WordPiece vocabularies
    are sorted by frequency.
    """

    def __init__(
        self, tokenizer: Tokenizer, table: Floats, function_words: frozenset[str], first_rank: int = 990
    ) -> None:
        self._tokenizer = tokenizer
        self._table = centred(table)
        ranks = np.maximum(np.arange(len(table)) - first_rank, 2)
        self._rarity = np.maximum(np.log1p(ranks / 50), 0.05).astype(np.float32)
        self._function_words = function_words

    def read(self, text: str) -> Words:
        """The text's first words, without punctuation."""
        text = text[:MAX_CHARACTERS]
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        # Each of these attributes is a new list at every access.
        ids, offsets, spans = encoding.ids, encoding.offsets, _words(encoding.word_ids)
        lowered = [text[offsets[span[0]][0] : offsets[span[-1]][1]].lower() for span in spans]
        kept = [
            (word, span)
            for word, span in zip(lowered, spans, strict=True)
            if any(letter.isalnum() for letter in word)
        ][:MAX_WORDS]
        content = np.array([word not in self._function_words for word, _ in kept], dtype=np.bool_)
        pieces = [ids[index] for _, span in kept for index in span]
        sizes = np.array([len(span) for _, span in kept], dtype=np.intp)
        return Words(
            texts=tuple(word for word, _ in kept),
            weights=self._weights(pieces, sizes, content),
            is_content=content,
            vectors=self._vectors(pieces, sizes),
        )

    def _weights(self, pieces: Sequence[int], sizes: NDArray[np.intp], content: NDArray[np.bool_]) -> Floats:
        """Words of several tokens are rare: their weight is at least 1.5 for each token."""
        if not pieces:
            return np.zeros(0, np.float32)
        rarest = np.maximum.reduceat(self._rarity[pieces], _starts(sizes))
        return np.where(content, np.maximum(rarest, 1.5 * sizes), LITTLE).astype(np.float32)

    def _vectors(self, pieces: Sequence[int], sizes: NDArray[np.intp]) -> Floats:
        """The unit vectors of the words; a sum has the same direction as a mean."""
        if not pieces:
            return np.zeros((0, self._table.shape[1]), np.float32)
        return unit(np.add.reduceat(self._table[pieces], _starts(sizes), axis=0))


def centred(table: Floats) -> Floats:
    """Input vectors share a large common part, which hides what tells them apart (Mu and Viswanath 2018,
    "All-but-the-top"): the mean is taken off, then each is a unit vector."""
    return unit(table - table.mean(axis=0))


def unit(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = (vectors / np.maximum(norms, 1e-6)).astype(np.float32)
    return scaled


def _starts(sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.cumsum(sizes) - sizes


def _words(word_ids: Sequence[int | None]) -> list[list[int]]:
    """Token indices by word, in order."""
    found: dict[int, list[int]] = {}
    for index, word in enumerate(word_ids):
        if word is not None:
            found.setdefault(word, []).append(index)
    return list(found.values())
