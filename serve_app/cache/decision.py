"""Whether a near entry answers a request: small pure steps, each with a reason.

A decision runs the steps in order and ends at the first that objects. A new step (guards, a learned
verifier) is a function added to ``STEPS``; the request path does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the steps judge: the new text, the candidate's text, and their cosine similarity."""

    text: str
    candidate_text: str
    similarity: float
    threshold: float


Step = Callable[[Evidence], str | None]
"""Returns the reason to refuse, or ``None``."""


def similar_enough(evidence: Evidence) -> str | None:
    return None if evidence.similarity >= evidence.threshold else "similarity"


def is_text(evidence: Evidence) -> str | None:
    """A text without a letter or digit has an embedding, but no meaning to compare."""
    return None if any(character.isalnum() for character in evidence.text) else "no_words"


STEPS: tuple[Step, ...] = (similar_enough, is_text)


def refusal(evidence: Evidence, steps: tuple[Step, ...] = STEPS) -> str | None:
    """The reason why the candidate must not answer, or ``None``: it is a hit."""
    return next((reason for step in steps if (reason := step(evidence)) is not None), None)
