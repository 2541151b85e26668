"""The learned bound: an entry answers only at scores at which entries have been right often enough."""

from serve_app.cache.bound.blocked import BlockedPairs, text_hash
from serve_app.cache.bound.budget import ErrorBudget
from serve_app.cache.bound.compare import same_answer
from serve_app.cache.bound.evidence import EntryEvidence, Observation, feedback
from serve_app.cache.bound.model import Decision, LearnedBound, upper_bound
from serve_app.cache.bound.policy import ReusePolicy, Unbounded, reuse_policy
from serve_app.cache.bound.population import PopulationEvidence
from serve_app.cache.bound.reuses import RecentReuses

__all__ = [
    "BlockedPairs",
    "Decision",
    "EntryEvidence",
    "ErrorBudget",
    "LearnedBound",
    "Observation",
    "PopulationEvidence",
    "RecentReuses",
    "ReusePolicy",
    "Unbounded",
    "feedback",
    "reuse_policy",
    "same_answer",
    "text_hash",
    "upper_bound",
]
