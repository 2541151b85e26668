"""The cheapest model whose context holds prompt and answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from serve_app.model_choice.base import Candidate, ChoiceRequest

MARGIN = 2.0
"""The usual upper bound of real prompt tokens per estimated token: an engine refuses a prompt that is too
long. SmolLM2's tokenizer gives 1.0 to 1.2 for English and code, 1.5 to 1.6 for German, Russian and JSON, 2.1
for Chinese."""


def cheapest_that_fits(request: ChoiceRequest, candidates: Sequence[Candidate]) -> str:
    """The cheapest model that fits; among equals, the first in the settings. Models that can serve now come
    first. If the context of none of them is long enough, models that a request would start are considered. If
    those do not fit either, the request goes to the model with the longest context that can serve, and its
    engine accepts or refuses it."""
    serving = [candidate for candidate in candidates if candidate.can_serve] or list(candidates)
    tokens = request.prompt_tokens * MARGIN + request.answer_tokens
    startable = [candidate for candidate in candidates if candidate.can_start]
    fitting = _holding(serving, tokens) or _holding(startable, tokens)
    if not fitting:
        return max(serving, key=lambda candidate: candidate.context or math.inf).name
    return min(fitting, key=lambda candidate: candidate.cost(request)).name


def _holding(candidates: Sequence[Candidate], tokens: float) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.holds(tokens)]
