"""All scorers by name, and the score of a case by its assertions."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Assertion, Case
from serve_app.evaluation.scorers.autoevals_scorers import Autoevals
from serve_app.evaluation.scorers.base import CaseScore, Score, ScoreError, Services
from serve_app.evaluation.scorers.functions import PythonFunction
from serve_app.evaluation.scorers.json_values import JsonEqual, JsonSchema
from serve_app.evaluation.scorers.judge import Judge
from serve_app.evaluation.scorers.numbers import Numeric
from serve_app.evaluation.scorers.options import OptionScorer
from serve_app.evaluation.scorers.patterns import Regex
from serve_app.evaluation.scorers.tool_calls import ToolCalls
from serve_app.evaluation.scorers.vectors import Similar
from serve_app.evaluation.scorers.words import Contains, Exact, NotContains

SCORERS: Mapping[str, type[OptionScorer]] = {
    "exact": Exact,
    "contains": Contains,
    "not-contains": NotContains,
    "regex": Regex,
    "numeric": Numeric,
    "json-schema": JsonSchema,
    "json-equal": JsonEqual,
    "tool-calls": ToolCalls,
    "similar": Similar,
    "judge": Judge,
    "python": PythonFunction,
    "autoevals": Autoevals,
}


def make_scorer(assertion: Assertion, *, has_expected: bool = True) -> OptionScorer:
    """
    Raises:
        ValueError: there is no such scorer, or it lacks something; ``pydantic.ValidationError``, which is
        one, names the option.
    """
    found = SCORERS.get(assertion.scorer)
    if found is None:
        raise ValueError(f"unknown scorer {assertion.scorer!r}; expected one of: {', '.join(SCORERS)}")
    scorer = found.model_validate(dict(assertion.options))
    scorer.check(has_expected=has_expected)
    return scorer


async def score_case(case: Case, answer: Answer, services: Services) -> CaseScore:
    """All assertions of a case about one answer. An answer that is an error fails without asking them. A
    scorer that cannot judge leaves the case without a value, and never counts as 0."""
    if answer.error is not None:
        return CaseScore(0.0, False, (), (f"no answer: {answer.error}",))
    scores: list[Score | None] = []
    reasons: list[str] = []
    for assertion in case.assertions:
        try:
            scorer = make_scorer(assertion, has_expected=case.expected is not None)
            score = await scorer.score(case, answer, services)
        except (ScoreError, ValueError) as error:
            scores.append(None)
            reasons.append(f"{assertion.scorer} could not judge: {error}")
        except Exception as error:  # a mistake in a scorer must not end a run of hours
            scores.append(None)
            reasons.append(f"{assertion.scorer} could not judge: it raised {type(error).__name__}")
        else:
            scores.append(score)
            if not score.passed:
                reasons.append(f"{assertion.scorer}: {score.reason}")
    return CaseScore(_value(case, scores), _passed(scores), tuple(scores), tuple(reasons))


def _value(case: Case, scores: list[Score | None]) -> float | None:
    if not scores or None in scores:
        return None
    weights = [assertion.weight for assertion in case.assertions]
    parts = (weight * score.value for weight, score in zip(weights, scores, strict=True) if score is not None)
    return min(1.0, sum(parts) / sum(weights))


def _passed(scores: list[Score | None]) -> bool | None:
    if any(score is not None and not score.passed for score in scores):
        return False
    return None if not scores or None in scores else True
