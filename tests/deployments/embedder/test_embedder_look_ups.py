"""Look-ups reach the embedder by its own listener, other texts through Serve: only the former go first."""

from __future__ import annotations

import asyncio
from typing import Any

from support.graph import eventually
from support.handles import LocalHandle
from support.held_encoder import HeldEncoder, held_embedder

from deployments.embedder.deployment import Embedder
from deployments.wire.direct_calls import ADDRESS_METHOD, DirectClient
from serve_app.wire.calls import EMBEDDER
from serve_app.wire.private_address import PrivateAddress


class Replica(LocalHandle):
    """A handle that knows its replica's address, as Serve's does."""

    def broadcast(self, method: str) -> Replica:
        assert method == ADDRESS_METHOD
        return self

    async def _fetch_replica_results_async(self) -> list[Any]:
        return [self]

    async def get_async(self) -> PrivateAddress:
        embedder: Embedder = self.target
        return await embedder.address()


async def test_a_look_up_goes_before_all_texts_that_wait() -> None:
    encoder = HeldEncoder()
    handle = Replica(held_embedder(encoder, most=2))
    client = DirectClient(handle, EMBEDDER)
    await client.refresh()
    with encoder.held():
        warm = len(encoder.passes)
        bulk = [
            asyncio.ensure_future(handle.embed.remote([f"{owner} {number}" for number in range(9)], owner))
            for owner in "abcdef"
        ]

        async def runs() -> bool:
            return len(encoder.passes) > warm

        assert await eventually(runs, within_s=30)
        look_up = asyncio.ensure_future(client.call("embed", ["a question"], "z"))

        async def waits() -> bool:
            return bool(handle.target.recent.misses)

        assert await eventually(waits, within_s=30)
        encoder.let_go(2)
        async with asyncio.timeout(30):
            [found] = await look_up
        assert encoder.passes[warm + 1] == ["a question"]
        assert found.is_whole
        assert handle.begun["embed"] == 6
        encoder.let_go(6 * 9)
        await asyncio.gather(*bulk)
    await client.close()
    direct = handle.target._direct
    assert direct is not None
    await direct.stop()


async def test_a_look_up_whose_request_no_longer_waits_is_not_embedded() -> None:
    encoder = HeldEncoder()
    handle = Replica(held_embedder(encoder, most=1))
    client = DirectClient(handle, EMBEDDER)
    await client.refresh()
    warm = len(encoder.passes)
    async with asyncio.timeout(60):
        with encoder.held():
            first = asyncio.ensure_future(client.call("embed", ["first"], "a"))
            left = asyncio.ensure_future(client.call("embed", ["left"], "b"))

            async def arrived() -> bool:
                return handle.target.recent.misses >= 2

            assert await eventually(arrived, within_s=30)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)

            async def dropped() -> bool:
                return not handle.target.waiting

            assert await eventually(dropped, within_s=30)
        await first
        assert (await client.call("embed", ["third"], "c"))[0].is_whole
    assert encoder.passes[warm:] == [["first"], ["third"]]
    await client.close()
    direct = handle.target._direct
    assert direct is not None
    await direct.stop()
