"""What the verifier knows of a pair of texts: cheap numbers, the same whichever text comes first."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from serve_app.cache.verifier.words import Floats, Words

QUESTION_WORDS = ("what", "which", "who", "whom", "whose", "when", "where", "why", "how")
NONE_LEFT = 1.2
"""The similarity of two empty remainders: above that of any two words."""
ONE_LEFT = -0.3
"""The similarity of a remainder to nothing: below that of most words."""


def pair_features(first: Words, second: Words, similarity: float) -> dict[str, float]:
    """Features of two texts with at least one word each; ``similarity`` is their embeddings' cosine.

    ``_lo`` and ``_hi`` are the lesser and the greater of the two directions' values.
    """
    features = {"cosine": similarity, **_lengths(len(first), len(second))}
    matches = first.vectors @ second.vectors.T
    features |= _both(_match(first, matches.max(axis=1)), _match(second, matches.max(axis=0)))
    features |= _both(_left_over(first, second, matches), _left_over(second, first, matches.T))
    features |= _shared(first, second)
    features |= _remainders(first, second)
    features |= _order(first, second)
    features["same_question_word"] = float(_question_word(first.texts) == _question_word(second.texts))
    features["same_first_word"] = float(first.texts[0] == second.texts[0])
    features["same_last_word"] = float(first.texts[-1] == second.texts[-1])
    return features


def _lengths(first: int, second: int) -> dict[str, float]:
    shorter, longer = sorted((first, second))
    return {
        "length_ratio": shorter / longer,
        "length_log": math.log(longer),
        "length_difference": longer - shorter,
    }


def _both(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in first.items():
        found[f"{name}_lo"], found[f"{name}_hi"] = sorted((value, second[name]))
    return found


def _match(words: Words, best: Floats) -> dict[str, float]:
    """How well each word is found on the other side; ``best`` [n] is its best match there."""
    content = words.is_content if words.is_content.any() else np.ones(len(words), np.bool_)
    function = ~words.is_content
    loss = ((1 - best) * words.weights)[content]
    ordered = np.sort(best[content])
    return {
        "match_mean": float((best * words.weights).sum() / words.weights.sum()),
        "match_min": float(ordered[0]),
        "match_low_two": float(ordered[:2].mean()),
        "loss_max": float(loss.max()),
        "loss_sum": float(loss.sum()),
        "match_function": float(best[function].mean()) if function.any() else 1.0,
    }


def _left_over(words: Words, other: Words, matches: Floats) -> dict[str, float]:
    """The words that the other side does not have."""
    theirs = set(other.texts)
    left = np.array([word not in theirs for word in words.texts], dtype=np.bool_)
    weights = words.weights[left]
    return {
        "left_count": float(left.sum()),
        "left_content": float((left & words.is_content).sum()),
        "left_weight": float(weights.sum()),
        "left_weight_max": float(weights.max(initial=0.0)),
        "left_match_min": float(matches[left].max(axis=1).min()) if left.any() else 1.0,
    }


def _shared(first: Words, second: Words) -> dict[str, float]:
    one, two = set(first.texts), set(second.texts)
    one_content, two_content = _content(first), _content(second)
    weight = float(first.weights.sum() + second.weights.sum())
    left = _weight_outside(first, two) + _weight_outside(second, one)
    return {
        "overlap": 1 - left / weight,
        "content_jaccard": _jaccard(one_content, two_content),
        "function_jaccard": _jaccard(one - one_content, two - two_content),
        "content_shared": float(len(one_content & two_content)),
        "content_least": float(min(len(one_content), len(two_content))),
        "bigrams": _jaccard(_bigrams(first.texts), _bigrams(second.texts)),
        "same_bag": float(sorted(first.texts) == sorted(second.texts)),
        "same_digits": float(_digits(first.texts) == _digits(second.texts)),
    }


def _remainders(first: Words, second: Words) -> dict[str, float]:
    """What only one text says, taken as a whole, against what only the other one says."""
    one, two = _remainder(first, second), _remainder(second, first)
    if one is None and two is None:
        return {"remainders": NONE_LEFT, "one_sided": 0.0}
    if one is None or two is None:
        return {"remainders": ONE_LEFT, "one_sided": 1.0}
    norms = float(np.linalg.norm(one) * np.linalg.norm(two))
    return {"remainders": float(one @ two) / max(norms, 1e-6), "one_sided": 0.0}


def _remainder(words: Words, other: Words) -> Floats | None:
    theirs = set(other.texts)
    left = [index for index, word in enumerate(words.texts) if words.is_content[index] and word not in theirs]
    if not left:
        return None
    summed: Floats = (words.vectors[left] * words.weights[left, None]).sum(axis=0)
    return summed


def _order(first: Words, second: Words) -> dict[str, float]:
    """Whether the words that each text has once come in the same order in both."""
    every = _inversions(_places(first, second, content_only=False))
    content = _inversions(_places(first, second, content_only=True))
    return {"inversions": every[0], "inverted_share": every[1], "inverted_content_share": content[1]}


def _places(first: Words, second: Words, *, content_only: bool) -> list[int]:
    """The second text's places of shared single words, in the first text's order."""
    places = {word: index for index, word in enumerate(second.texts) if second.texts.count(word) == 1}
    return [
        places[word]
        for index, word in enumerate(first.texts)
        if word in places and first.texts.count(word) == 1 and (first.is_content[index] or not content_only)
    ]


def _inversions(places: Sequence[int]) -> tuple[float, float]:
    """Pairs in the wrong order, and their share of all pairs (Kendall's tau distance)."""
    count = len(places)
    if count < 2:
        return 0.0, 0.0
    wrong, after = 0, list[int]()
    for place in reversed(places):
        wrong += bisect_left(after, place)
        insort(after, place)
    return float(wrong), wrong / (count * (count - 1) / 2)


def _content(words: Words) -> set[str]:
    return {word for word, is_content in zip(words.texts, words.is_content, strict=True) if is_content}


def _weight_outside(words: Words, others: set[str]) -> float:
    return float(
        sum(
            weight
            for word, weight in zip(words.texts, words.weights.tolist(), strict=True)
            if word not in others
        )
    )


def _jaccard(one: set[str] | set[tuple[str, str]], two: set[str] | set[tuple[str, str]]) -> float:
    union = len(one | two)
    return len(one & two) / union if union else 1.0


def _bigrams(words: Sequence[str]) -> set[tuple[str, str]]:
    return set(pairwise(words))


def _digits(words: Sequence[str]) -> list[str]:
    return sorted(word for word in words if word[0].isdigit())


def _question_word(words: Sequence[str]) -> str | None:
    return next((word for word in words if word in QUESTION_WORDS), None)
