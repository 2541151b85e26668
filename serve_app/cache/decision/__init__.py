"""Whether a near entry answers a request: contract, steps, and the pipeline that runs them."""

from serve_app.cache.decision.contract import Finding, Pair, Reading, Step, Verdict
from serve_app.cache.decision.pipeline import (
    Decision,
    cross_encoded,
    guarded,
    similarity_only,
    verified,
)

__all__ = [
    "Decision",
    "Finding",
    "Pair",
    "Reading",
    "Step",
    "Verdict",
    "cross_encoded",
    "guarded",
    "similarity_only",
    "verified",
]
