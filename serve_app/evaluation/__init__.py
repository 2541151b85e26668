"""Judging models before they ship: suites of cases, scorers of answers.

``from serve_app.evaluation import Answer, Case, Score`` is what a scorer that is a Python function needs. A
runner reads ``load_suite(path)`` and asks ``scorers.registry.score_case(case, answer, services)``.
"""

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Assertion, Case
from serve_app.evaluation.scorers.base import CaseScore, Score, ScoreError, Scorer, Services
from serve_app.evaluation.suite import Suite, load_suite

__all__ = [
    "Answer",
    "Assertion",
    "Case",
    "CaseScore",
    "Score",
    "ScoreError",
    "Scorer",
    "Services",
    "Suite",
    "load_suite",
]
