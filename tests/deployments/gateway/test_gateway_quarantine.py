"""A request that breaks its member: it is asked for once more, and then refused; those around it are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Member, answers, begin, chunk, cut, listening
from support.gateway import MODEL, Faults, Running, SimSettings, gateway

POISON = "poison"
ENGINES = 4
QUICK = SimSettings(itl_ms=0, tokens=4)
WELL: Any = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}
RARELY_LOOKED_AT: dict[str, Any] = {"kind": "vllm", "health_period_s": 60.0}


class Mortal:
    """Members that break on the poison and answer everything else."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.members = [Member(self.answer) for _ in range(ENGINES)]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if POISON not in str(body):
            return await answers(200, WELL)(request)
        if self.how == "500":
            return await answers(500, {"error": {"message": "no"}})(request)
        if self.how == "cut":
            response = await begin(request)
            await response.write(b"data: " + chunk("x") + b"\n\n")
            await asyncio.sleep(0)
        await cut(request)
        raise AssertionError("it is cut")

    def poisoned(self) -> list[int]:
        """How often each member was sent it."""
        return [sum(POISON in str(seen.fields) for seen in member.seen) for member in self.members]


@asynccontextmanager
async def mortal(how: str, *, equal: bool = False, **args: Any) -> AsyncIterator[tuple[Running, Mortal]]:
    """``equal``: members take turns; else the first one is asked first."""
    fleet = Mortal(how)
    async with listening(*fleet.members):
        others = [
            member.upstream(name=f"e{number}", priority=0 if equal else number, **RARELY_LOOKED_AT)
            for number, member in enumerate(fleet.members)
        ]
        settings = {"max_attempts": 9} | ({"routing": "round_robin"} if equal else {})
        async with gateway(others=others, gateway=settings, **args) as running:
            yield running, fleet


async def quarantined(running: Running) -> int:
    return (await running.traffic())["quarantined"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("how", ["500", "closed"])
async def test_a_request_that_breaks_its_member_is_sent_to_one_more_and_then_refused(
    how: str, stream: bool
) -> None:
    async with mortal(how) as (running, fleet):
        assert (await running.post(POISON, stream=stream)).status == 502
        sent = fleet.poisoned()
        # Over the first member's kept connection it may have been sent once more, over a new one.
        assert sent in ([1, 1, 0, 0], [2, 1, 0, 0])
        refused = await running.post(POISON, stream=stream)
        assert (refused.status, refused.error["code"]) == (422, "request_quarantined")
        assert "limits.quarantine_s" in refused.error["message"]
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-should-retry"] == "false"
        assert (fleet.poisoned(), await quarantined(running)) == (sent, 1)
        assert (await running.post("well")).status == 200
        await running.until_idle()


async def test_a_stream_that_breaks_its_members_after_its_first_byte_is_refused_too() -> None:
    async with mortal("cut", equal=True) as (running, fleet):
        while (answer := await running.post(POISON, stream=True)).status == 200:
            assert answer.cut["code"] == "upstream_failed"
            assert sum(fleet.poisoned()) < 20, fleet.poisoned()
        assert answer.error["code"] == "request_quarantined"
        assert sum(sent > 0 for sent in fleet.poisoned()) == 2, fleet.poisoned()


@pytest.mark.parametrize("path", ["/v1/embeddings", "/tokenize"])
async def test_what_is_only_relayed_is_refused_once_two_members_broke_on_it(path: str) -> None:
    body = {"model": MODEL, "input": POISON, "prompt": POISON}
    async with mortal("500", equal=True) as (running, fleet):
        assert [(await running.send(body, path)).status for _ in range(4)] == [502, 502, 422, 422]
        assert sorted(fleet.poisoned()) == [0, 0, 1, 1]
        assert (await running.send({"model": MODEL, "input": "x", "prompt": "x"}, path)).status == 200


async def test_another_tenant_is_not_refused_for_it() -> None:
    async with mortal("500", tenants=["a", "b"]) as (running, fleet):
        assert (await running.post(POISON, running.headers("a"))).status == 502
        assert (await running.post(POISON, running.headers("a"))).status == 422
        assert (await running.post(POISON, running.headers("b"))).status == 502
        assert fleet.poisoned() == [2, 2, 0, 0]


async def test_it_is_asked_for_again_after_a_while() -> None:
    async with mortal("500", limits={"quarantine_s": 0.3}) as (running, fleet):
        assert [(await running.post(POISON)).status for _ in range(2)] == [502, 422]
        await asyncio.sleep(0.4)
        assert (await running.post(POISON)).status == 502
        assert fleet.poisoned() == [2, 2, 0, 0]


async def test_no_time_means_never() -> None:
    async with mortal("500", limits={"quarantine_s": 0}) as (running, _):
        assert [(await running.post(POISON)).status for _ in range(3)] == [502] * 3


@pytest.mark.parametrize("faults", [Faults(status=503), Faults(status=502)], ids=["503", "502"])
async def test_members_that_are_only_away_refuse_nobody(faults: Faults) -> None:
    upstreams = [{"priority": number, "health_period_s": 60.0} for number in range(2)]
    async with gateway(QUICK, QUICK, upstreams=upstreams) as running:
        for engine in running.engines:
            await engine.set_faults(faults)
        assert (await running.post("hi")).status == 502
        for engine in running.engines:
            await engine.set_faults(Faults())
        assert (await running.post("hi")).status == 200


async def test_streams_whose_members_die_one_after_the_other_are_not_refused() -> None:
    """Each loses two members, and so does everybody else: asked again, all are answered."""
    long = SimSettings(itl_ms=10, tokens=100)
    upstreams = [{"priority": number, "max_requests": 64, "health_period_s": 60.0} for number in range(3)]
    questions = [f"question {number}" for number in range(24)]
    async with gateway(long, long, long, upstreams=upstreams) as running:
        asked = [asyncio.create_task(running.post(text, stream=True, temperature=0)) for text in questions]
        for engine in running.engines[:2]:
            async with asyncio.timeout(10):
                await engine.until(lambda stats: stats.running == len(questions))
            await engine.kill()
        answers_ = await asyncio.gather(*asked)
        assert all(answer.text for answer in answers_)
        assert (await running.traffic())["cut"] == 0
        for text in questions:
            assert (await running.post(text, max_tokens=1)).status == 200
        assert await quarantined(running) == 0


async def test_a_popular_request_outlives_the_deaths_of_its_members() -> None:
    """It broke at both, yet others answered it meanwhile."""
    async with mortal("500") as (running, fleet):
        for member in fleet.members[:2]:
            member.answer = answers(500, {"error": {"message": "no"}})
            assert (await running.post("popular")).status == 200
            member.answer = answers(200, WELL)
        assert (await running.post("popular")).status == 200
        assert await quarantined(running) == 0
