"""A tenant's own administrators change so much a minute, whatever others do."""

from __future__ import annotations

import pytest

from serve_app.accounts.pace import ChangePace
from serve_app.errors import RateLimited


def test_a_minutes_worth_may_come_at_once_and_comes_back_evenly() -> None:
    pace = ChangePace(60)
    for _ in range(60):
        pace.take("acme", 10.0)
    with pytest.raises(RateLimited, match="tenant_changes_per_minute") as refused:
        pace.take("acme", 10.25)
    assert refused.value.retry_after_s == 1
    pace.take("beta", 10.25)
    pace.take("acme", 11.0)
    with pytest.raises(RateLimited):
        pace.take("acme", 11.0)
