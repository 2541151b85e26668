"""Sampling options that vLLM 0.29 refuses with speculation: it cannot apply them to drafted tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_app.errors import BadRequest

EPSILON = 1e-5
"""vLLM's own bound: a smaller ``min_p`` counts as none."""


def refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Raises: BadRequest: a request for a model with speculation uses one of these options."""
    min_p = fields.get("min_p")
    if isinstance(min_p, int | float) and min_p > EPSILON:
        raise _unsupported("min_p")
    if fields.get("logit_bias"):
        raise _unsupported("logit_bias")


def _unsupported(name: str) -> BadRequest:
    return BadRequest(
        f"`{name}` does not work with speculative decoding, which this model's engine uses "
        "(engine.speculation). Leave it out, or ask a model without speculation.",
        param=name,
        code="unsupported_with_speculation",
    )
