"""`similar`: how near the embedding of the answer is to that of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.scorers.base import Score, ScoreError, Services
from serve_app.evaluation.scorers.options import OptionScorer, texts, verdict


class Similar(OptionScorer):
    """The cosine to ``value``, or to the nearest of a list, is at least ``threshold``. The score is the
    cosine, and 0 below 0."""

    threshold: float = Field(0.8, ge=0, le=1, allow_inf_nan=False)

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        if not answer.text.strip():
            return verdict(False, "the answer is empty")
        wanted = texts(self.wanted(case))
        vectors = await services.embed([answer.text, *wanted])
        if len(vectors) != len(wanted) + 1:
            raise ScoreError(f"{len(wanted) + 1} embeddings were asked for, {len(vectors)} came")
        best = max(cosine(vectors[0], vector) for vector in vectors[1:])
        return verdict(
            best >= self.threshold, f"cosine {best:.3f}, wanted {self.threshold:g}", min(1.0, max(0.0, best))
        )


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """
    Raises:
        ScoreError: the vectors have different lengths, no length, or values that are no numbers.
    """
    if len(one) != len(other):
        raise ScoreError(f"embeddings have different lengths: {len(one)} and {len(other)}")
    length = math.hypot(*one) * math.hypot(*other)
    if not (math.isfinite(length) and length > 0):
        raise ScoreError("an embedding is zero or not finite")
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / length
