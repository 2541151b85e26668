"""Who joined another client's request is not bound by that one's limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from local_cache import local_cache
from support.accounts import accounts_handle, bearer, managed
from support.gateway import Running, SimSettings, gateway, meanwhile
from support.graph import eventually
from support.handles import LocalHandle
from test_gateway_limits import knows

from serve_app.quotas.limits import Limit


@asynccontextmanager
async def two_keys(
    folder: Path, engine: SimSettings, **limits: int
) -> AsyncIterator[tuple[Running, LocalHandle, dict[str, str], dict[str, str]]]:
    """Two keys of one tenant, of which the first has these limits, before a gateway that joins requests."""
    async with local_cache(folder / "cache", race=False) as local, accounts_handle(folder) as handle:
        bound, kept = managed("acme")
        free, kept_too = managed("acme")
        for each in (kept, kept_too):
            await handle.target.make_key(each)
        await handle.target.set_limit(Limit(f"key:{kept.record.id}", **limits))
        args = {**local.args, "auth": {"accounts": True}, "accounts": {"call_timeout_s": 1.5}}
        async with gateway(engine, handles={"accounts": handle, **local.handles}, **args) as running:
            assert await eventually(lambda: knows(running, bearer(free)), within_s=10)
            yield running, handle, bearer(bound), bearer(free)


async def test_a_joined_stream_that_the_others_budget_ends_does_not_name_that_budget(tmp_path: Path) -> None:
    engine = SimSettings(itl_ms=2, tokens=2500)
    async with two_keys(tmp_path, engine, tokens_per_day=1500) as (running, _, bound, free):
        async with (
            running.stream("tell me all", bound, temperature=0) as first,
            running.stream("tell me all", free, temperature=0) as second,
        ):
            assert second.headers["x-cache"] == "joined"
            ended, joined = await first.rest(), await second.rest()
        assert ended.cut["code"] == "insufficient_quota"
        assert joined.cut["code"] == "joined_answer_ended"
        assert "1500" not in joined.cut["message"]


async def test_who_waits_for_a_request_that_is_refused_asks_a_member_itself(tmp_path: Path) -> None:
    slow = SimSettings(first_token_ms=300, itl_ms=1, tokens=5)
    async with two_keys(tmp_path, slow, tokens_per_day=500) as (running, handle, bound, free):
        assert (await running.post("word " * 300, bound, max_tokens=1)).status == 200  # most of it is used
        with handle.held("lease"):  # the first request waits for its owner
            async with meanwhile(running.post("tell", bound, temperature=0, max_tokens=400)) as first:
                await running.until_traffic(lambda traffic: traffic["requests"] == 2)
                async with meanwhile(running.post("tell", free, temperature=0, max_tokens=400)) as second:
                    await running.until_traffic(lambda traffic: traffic["joined"] == 1)
                    handle.let("lease")
                    assert (await first).status == 429
                    answer = await second
        assert answer.status == 200, answer.body
        assert running.requests() == [2]
