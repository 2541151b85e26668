"""What tests of scorers share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from serve_app.evaluation import Answer, Assertion, Case, Score, ScoreError
from serve_app.evaluation.scorers.registry import make_scorer


class FakeServices:
    """A judge that says what is scripted, in order, and an embedder that knows some texts."""

    def __init__(self, *replies: str, vectors: Mapping[str, Sequence[float]] | None = None) -> None:
        self.asked: list[str] = []
        self._replies = list(replies)
        self._vectors = vectors or {}

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [self._vectors[text] for text in texts]

    async def ask_judge(self, messages: Sequence[Mapping[str, Any]]) -> str:
        self.asked.append(messages[-1]["content"])
        if not self._replies:
            raise ScoreError("no judge")
        return self._replies.pop(0)


def judged(
    scorer: str,
    text: str | Answer,
    *,
    expected: Any = None,
    services: FakeServices | None = None,
    **options: Any,
) -> Score:
    """The score of one answer by one scorer."""
    case = Case("a", ({"role": "user", "content": "What?"},), expected)
    answer = text if isinstance(text, Answer) else Answer(text)
    made = make_scorer(Assertion(scorer, options), has_expected=expected is not None)
    return asyncio.run(made.score(case, answer, services or FakeServices()))
