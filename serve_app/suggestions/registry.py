"""All rules of suggestions. A new one is a function here that gives suggestions, or none."""

from __future__ import annotations

from serve_app.suggestions.contract import Observed, Rule, Suggestion
from serve_app.suggestions.lengths import larger_than_needed, unused_max_tokens
from serve_app.suggestions.prefix import early_variation
from serve_app.suggestions.threshold import strict_threshold

RULES: tuple[Rule, ...] = (early_variation, unused_max_tokens, larger_than_needed, strict_threshold)


def suggestions_of(observed: Observed) -> list[Suggestion]:
    return [suggestion for rule in RULES for suggestion in rule(observed)]
