"""The cheapest model whose context holds prompt and answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from serve_app.model_choice.base import Candidate, ChoiceRequest

MARGIN = 2.0
"""Real tokens of a prompt for each estimated one, as a rule at most: an engine refuses what is too long.
SmolLM2's tokenizer makes 1.0 to 1.2 of English and code, 1.5 to 1.6 of German, Russian and JSON, 2.1 of
Chinese."""


def cheapest_that_fits(request: ChoiceRequest, candidates: Sequence[Candidate]) -> str:
    """By cost, then by the order of the settings. Models that nobody could serve now are left out while there
    are others that are long enough, and then those that a request starts are left in; if none is, the longest
    one's engine has the last word."""
    serving = [candidate for candidate in candidates if candidate.can_serve] or list(candidates)
    tokens = request.prompt_tokens * MARGIN + request.answer_tokens
    startable = [candidate for candidate in candidates if candidate.can_start]
    fitting = _holding(serving, tokens) or _holding(startable, tokens)
    if not fitting:
        return max(serving, key=lambda candidate: candidate.context or math.inf).name
    return min(fitting, key=lambda candidate: candidate.cost(request)).name


def _holding(candidates: Sequence[Candidate], tokens: float) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.holds(tokens)]
