"""A crowd's requests begin one by one over HTTP, and nobody else waits for them."""

from __future__ import annotations

import asyncio

from support.gateway import FAST, Running, gateway

TOGETHER = 40


async def timing(running: Running, tenant: str, number: int) -> str:
    answer = await running.post(f"{number}", running.headers(tenant), max_tokens=1)
    assert answer.status in (200, 429), answer.body
    return answer.headers.get("server-timing", "")


async def known(running: Running) -> None:
    for tenant in ("noisy", "quiet"):
        await timing(running, tenant, 0)
    await asyncio.sleep(0.02)  # longer than a crowd's requests are apart


async def test_of_a_crowd_all_but_the_first_wait_for_their_turn() -> None:
    async with gateway(FAST, tenants=["noisy", "quiet"]) as running:
        await known(running)
        crowd = [timing(running, "noisy", number) for number in range(TOGETHER)]
        *noisy, quiet = await asyncio.gather(*crowd, timing(running, "quiet", 1))
        assert sum("turn;" in each for each in noisy) > TOGETHER / 2
        assert "turn;" not in quiet


async def test_probes_and_strangers_are_answered_beside_a_crowd_of_strangers() -> None:
    async with gateway(FAST, tenants=["noisy", "quiet"]) as running:
        await known(running)

        async def stranger(number: int) -> int:
            headers = {"authorization": f"Bearer made up {number}"}
            return (await running.post("hello", headers)).status

        async def probed() -> int:
            async with running.http.get("/health") as response:
                return response.status

        *strangers, probe = await asyncio.gather(*map(stranger, range(TOGETHER)), probed())
        assert (set(strangers), probe) == ({401}, 200)
