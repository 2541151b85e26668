"""A budget of money beside models without a price is told at the start."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.settings import parse_args
from serve_app.settings.doubts import doubts

UPSTREAMS = [{"name": "u", "url": "http://127.0.0.1:1/v1"}]
PRICED = {"id": "priced", "upstreams": UPSTREAMS, "cost_per_million_tokens": {"input": 1, "output": 2}}
FREE = {"id": "free", "upstreams": UPSTREAMS}


def told(*models: dict[str, Any], **limits: Any) -> list[str]:
    args = {"models": list(models), "auth": {"accounts": True}, "accounts": {"limits": limits}}
    return list(doubts(parse_args(args, source="test")))


@pytest.mark.parametrize("kind", ["key", "user", "tenant", "model", "use"])
@pytest.mark.parametrize("bound", ["money_per_day", "money_per_month"])
def test_a_model_without_a_price_beside_a_budget_of_money_is_doubtful(kind: str, bound: str) -> None:
    assert told(PRICED, FREE, **{kind: {bound: 2.5}}) == [
        f"accounts.limits.{kind}.{bound} = 2.5: requests to 'free' cost nothing, as "
        "models[].cost_per_million_tokens says no price"
    ]


def test_prices_of_all_models_or_no_budget_of_money_leave_no_doubt() -> None:
    assert told(PRICED, tenant={"money_per_day": 2.5}) == []
    assert told(FREE, tenant={"tokens_per_day": 5}) == []
