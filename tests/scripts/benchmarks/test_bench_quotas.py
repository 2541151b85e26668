"""The benchmark of quotas uses up what there is, and no more."""

from benchmarks.quotas import Case, run_case

from serve_app.quotas.limits import Bound


async def test_a_small_limit_is_used_up_and_not_exceeded() -> None:
    outcome = await run_case(Case(Bound.REQUESTS, 40, 1, 1), 1.5, streams=4)
    assert outcome.used == 40
    assert outcome.reserving_s
