"""A scorer of a suite's own, found by its module's name."""

from __future__ import annotations

from serve_app.evaluation import Answer, Case


def is_empty(case: Case, answer: Answer) -> bool:
    return not answer.text
