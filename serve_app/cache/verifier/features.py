"""The verifier's features of a pair of texts: cheap numbers that do not depend on the order of the texts."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence, Set

from serve_app.cache.verifier.words import Floats, Words

QUESTION_WORDS = frozenset({"what", "which", "who", "whom", "whose", "when", "where", "why", "how"})
NONE_LEFT = 1.2
"""The similarity of two empty remainders: above that of any two words."""
ONE_LEFT = -0.3
"""The similarity of a remainder to nothing: below that of most words."""


def pair_features(first: Words, second: Words, similarity: float) -> dict[str, float]:
    """Features of two texts with at least one word each; ``similarity`` is their embeddings' cosine.

    ``_lo`` and ``_hi`` are the lesser and the greater of the two directions' values. A text has some ten
    words: with so few, plain Python takes a fraction of numpy's time.
    """
    matches = first.vectors @ second.vectors.T
    best, best_back = matches.max(axis=1).tolist(), matches.max(axis=0).tolist()
    left, left_back = _left_over(first, second, best), _left_over(second, first, best_back)
    return {
        "cosine": similarity,
        **_lengths(len(first), len(second)),
        **_both(_match(first, best), _match(second, best_back)),
        **_both(left, left_back),
        **_shared(first, second, left["left_weight"] + left_back["left_weight"]),
        **_remainders(first, second),
        **_order(first, second),
        "same_question_word": float(_question_word(first.texts) == _question_word(second.texts)),
        "same_first_word": float(first.texts[0] == second.texts[0]),
        "same_last_word": float(first.texts[-1] == second.texts[-1]),
    }


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


def _match(words: Words, best: Sequence[float]) -> dict[str, float]:
    """How well each word is found on the other side; ``best`` [n] is its best match there. A text of function
    words alone is compared by these."""
    found = [
        (each, weight, is_content) for each, (_, weight, is_content) in zip(best, words.said, strict=True)
    ]
    content = [(match, weight) for match, weight, is_content in found if is_content]
    function = [match for match, _, is_content in found if not is_content]
    content = content or [(match, weight) for match, weight, _ in found]
    losses = [(1 - match) * weight for match, weight in content]
    lowest = sorted(match for match, _ in content)[:2]
    return {
        "match_mean": sum(match * weight for match, weight, _ in found) / words.total_weight,
        "match_min": lowest[0],
        "match_low_two": sum(lowest) / len(lowest),
        "loss_max": max(losses),
        "loss_sum": sum(losses),
        "match_function": sum(function) / len(function) if function else 1.0,
    }


def _left_over(words: Words, other: Words, best: Sequence[float]) -> dict[str, float]:
    """Features of the words that the other text does not have."""
    left = [
        (weight, is_content, match)
        for (word, weight, is_content), match in zip(words.said, best, strict=True)
        if word not in other.distinct
    ]
    return {
        "left_count": float(len(left)),
        "left_content": float(sum(is_content for _, is_content, _ in left)),
        "left_weight": sum((weight for weight, _, _ in left), 0.0),
        "left_weight_max": max((weight for weight, _, _ in left), default=0.0),
        "left_match_min": min((match for _, _, match in left), default=1.0),
    }


def _shared(first: Words, second: Words, left_weight: float) -> dict[str, float]:
    """``left_weight``: the weight of the words that only one of the texts has."""
    return {
        "overlap": 1 - left_weight / (first.total_weight + second.total_weight),
        "content_jaccard": _jaccard(first.content, second.content),
        "function_jaccard": _jaccard(first.function, second.function),
        "content_shared": float(len(first.content & second.content)),
        "content_least": float(min(len(first.content), len(second.content))),
        "bigrams": _jaccard(first.bigrams, second.bigrams),
        "same_bag": float(first.in_order == second.in_order),
        "same_digits": float(first.digits == second.digits),
    }


def _remainders(first: Words, second: Words) -> dict[str, float]:
    """The words that only one text has, taken as a whole, compared with those that only the other has."""
    one, two = _remainder(first, second), _remainder(second, first)
    if one is None and two is None:
        return {"remainders": NONE_LEFT, "one_sided": 0.0}
    if one is None or two is None:
        return {"remainders": ONE_LEFT, "one_sided": 1.0}
    norms = math.sqrt(float(one @ one) * float(two @ two))
    return {"remainders": float(one @ two) / max(norms, 1e-6), "one_sided": 0.0}


def _remainder(words: Words, other: Words) -> Floats | None:
    left = [
        index
        for index, (word, _, is_content) in enumerate(words.said)
        if is_content and word not in other.distinct
    ]
    if not left:
        return None
    summed: Floats = words.weights[left] @ words.vectors[left]
    return summed


def _order(first: Words, second: Words) -> dict[str, float]:
    """Whether the words that occur once in each text are in the same order."""
    places = [(second.places[word], word) for word in first.places if word in second.places]
    wrong, share = _inversions([place for place, _ in places])
    _, content_share = _inversions([place for place, word in places if word in first.content])
    return {"inversions": wrong, "inverted_share": share, "inverted_content_share": content_share}


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


def _jaccard(one: Set[object], two: Set[object]) -> float:
    union = len(one | two)
    return len(one & two) / union if union else 1.0


def _question_word(words: Sequence[str]) -> str | None:
    return next((word for word in words if word in QUESTION_WORDS), None)
