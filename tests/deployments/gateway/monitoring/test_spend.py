"""Tokens are counted where an engine made them."""

from __future__ import annotations

from typing import Any

import pytest
from support.meter import Meter
from support.records import a_record

from deployments.gateway.monitoring.monitor import Monitor
from serve_app.monitoring import metrics as names
from serve_app.settings.alerts import AlertSettings


async def counts(**changed: Any) -> tuple[dict[str, int], Meter]:
    """Of one request with an answer that is long enough for the alert."""
    meter = Meter()
    monitor = Monitor(["m"], AlertSettings(), meter, clock=lambda: 0.0)
    monitor.take(a_record(prompt=100, output=20_000, **changed))
    figures = (await monitor.together()).figures
    known = ("tokens", "tokens_saved", "runaway_generations")
    return {name: figures.counted("5m", "m", name) for name in known}, meter


async def test_an_engines_answer_is_spend() -> None:
    counted, _ = await counts()
    assert counted == {"tokens": 20_100, "tokens_saved": 0, "runaway_generations": 1}


@pytest.mark.parametrize("tier", ["exact", "semantic", "joined"])
async def test_what_the_cache_answers_is_no_spend_and_no_runaway(tier: str) -> None:
    counted, meter = await counts(cache=tier)
    assert counted == {"tokens": 0, "tokens_saved": 20_000, "runaway_generations": 0}
    assert names.TOKENS.name not in meter.values
    assert names.RUNAWAY.name not in meter.values


async def test_a_hit_whose_client_left_is_no_spend_either() -> None:
    counted, _ = await counts(cache="exact", client_gone=True)
    assert counted == {"tokens": 0, "tokens_saved": 0, "runaway_generations": 0}


async def test_a_session_of_many_answers_is_no_runaway() -> None:
    counted, _ = await counts(method="GET", endpoint="realtime", status=101, cache=None)
    assert counted == {"tokens": 20_100, "tokens_saved": 0, "runaway_generations": 0}


async def test_what_was_refused_is_counted_beside_the_requests() -> None:
    monitor = Monitor(["m"], AlertSettings(), Meter(), clock=lambda: 0.0)
    for changed in ({}, {"status": 429}, {"error": "over_capacity", "error_status": 429}):
        monitor.take(a_record(**changed))
    figures = (await monitor.together()).figures
    assert [figures.counted("1m", "m", name) for name in ("requests", "refused")] == [3, 2]
