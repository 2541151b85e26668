"""Whether a near entry answers a request: contract, steps, and the pipeline that runs them."""

from serve_app.cache.decision.contract import Finding, Pair, Reading, Step, Verdict
from serve_app.cache.decision.pipeline import (
    Decision,
    cross_encoded,
    guarded,
    reworded,
    similarity_only,
    verified,
)
from serve_app.cache.decision.rewording import measured_alone

__all__ = [
    "Decision",
    "Finding",
    "Pair",
    "Reading",
    "Step",
    "Verdict",
    "cross_encoded",
    "guarded",
    "measured_alone",
    "reworded",
    "similarity_only",
    "verified",
]
