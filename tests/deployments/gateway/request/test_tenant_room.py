"""Room that tenants share."""

from __future__ import annotations

import asyncio

from deployments.gateway.request.tenant_room import TenantRoom


async def test_a_tenant_takes_no_more_than_its_part() -> None:
    room = TenantRoom(most=3, per_tenant=2)
    with room.take("a", 5) as taken:
        assert (taken.size, room.is_tenants_own("a")) == (2, True)
        with room.take("b", 5) as rest:
            assert (rest.size, room.is_tenants_own("b")) == (1, False)
    assert (room.free("a"), room.free("b")) == (2, 2)


async def test_who_waits_gets_the_place_that_is_given_back() -> None:
    room = TenantRoom(most=1, per_tenant=1)
    with room.take("a"):
        waiting = asyncio.create_task(room.wait("b", 1, timeout_s=30))
        await asyncio.sleep(0)
        assert not waiting.done()
    assert (await waiting).size == 1


async def test_who_waits_in_vain_gets_none() -> None:
    room = TenantRoom(most=1, per_tenant=1)
    with room.take("a"):
        assert (await room.wait("b", 1, timeout_s=0.01)).size == 0


async def test_who_stops_waiting_takes_nothing() -> None:
    room = TenantRoom(most=1, per_tenant=1)
    with room.take("a"):
        waiting = asyncio.create_task(room.wait("b", 1, timeout_s=30))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert room.free("b") == 1
