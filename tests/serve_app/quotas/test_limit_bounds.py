"""A limit that makes no sense is refused, and the field is named."""

from __future__ import annotations

import math

import pytest

from serve_app.quotas.limits import MOST, Limit, calendar_of, problem_of


@pytest.mark.parametrize("amount", [-1, MOST + 1, 10**400, math.inf, math.nan])
def test_an_amount_outside_the_bounds_is_refused(amount: float) -> None:
    problem = problem_of(Limit("tenant:acme", tokens_per_minute=amount))
    assert problem is not None
    assert problem[0] == "tokens_per_minute"


@pytest.mark.parametrize("amount", [0, 1, MOST])
def test_an_amount_inside_the_bounds_is_taken(amount: int) -> None:
    assert problem_of(Limit("tenant:acme", tokens_per_minute=amount)) is None


def test_a_models_days_are_the_same_for_all_and_the_others_those_of_the_tenant() -> None:
    """Else one model's budget would have as many days at once as its tenants have zones."""
    assert calendar_of("model:m", "acme") == ""
    for scope in ("key:0", "user:acme/ann", "tenant:acme", "use:acme/m"):
        assert calendar_of(scope, "acme") == "acme"
