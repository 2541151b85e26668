"""What speculative decoding gains (Leviathan, Kalman & Matias, "Fast Inference from Transformers via
Speculative Decoding", ICML 2023, arXiv:2211.17192)."""

from __future__ import annotations

import math

BISECTIONS = 30
"""Halvings of [0, 1]: an acceptance rate to 1e-9."""


def expected_tokens(acceptance: float, depth: float) -> float:
    """Tokens that a step gives when ``depth`` tokens were drafted, each accepted with probability
    ``acceptance`` if all before it were (equation 1): (1 − a^(k+1)) / (1 − a). One is the target's own."""
    if acceptance >= 1.0:
        return depth + 1.0
    return (1.0 - math.pow(acceptance, depth + 1.0)) / (1.0 - acceptance)


def speed_up(acceptance: float, depth: int, cost: float, coverage: float = 1.0) -> float:
    """How much faster answers grow than without speculation (theorem 3.8, with any cost of a step).

    ``cost``: time of a step with drafts over a plain one's; the theorem has ``depth`` × c + 1.
    ``coverage``: share of a step's requests that have a draft at all (an n-gram is not always found).
    """
    return (1.0 + coverage * (expected_tokens(acceptance, depth) - 1.0)) / cost


def acceptance_rate(drafts: float, drafted: float, accepted: float) -> float:
    """The acceptance of one token that explains ``accepted`` of ``drafted`` tokens in ``drafts`` drafts.

    Accepted over drafted would say too little: what follows a refused token is never judged.
    """
    if drafts <= 0 or drafted <= 0:
        return 0.0
    depth, mean = drafted / drafts, accepted / drafts
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, depth) - 1.0 < mean else (low, middle)
    return (low + high) / 2
