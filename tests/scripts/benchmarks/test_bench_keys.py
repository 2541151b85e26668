"""The benchmark of keys finds the one that it looks for, and tells a gateway what has changed."""

from __future__ import annotations

from benchmarks.keys import exchanges, look_up_us, ring_of


def test_a_ring_of_many_knows_its_one_key() -> None:
    ring, key = ring_of(50)
    assert ring.identify(f"Bearer {key}").tenant == "acme"
    assert 0 < look_up_us(50, 20) < 10_000


async def test_a_gateway_learns_all_keys_and_each_change() -> None:
    told = await exchanges(20, 3)
    assert 0 < told.all_s < 60
    assert told.nothing_ms > 0
    assert told.change_ms > 0
