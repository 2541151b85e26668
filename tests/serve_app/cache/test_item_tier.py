"""The tier of items: bounded, and emptied by purges."""

from __future__ import annotations

from serve_app.cache.entry import Selection
from serve_app.cache.items import OVERHEAD, Item, ItemTier


def item(value: bytes = b"1", tenant: str = "a", tags: tuple[str, ...] = ()) -> Item:
    return Item(tenant, "m", value, 0.0, 10.0, tags)


def test_it_holds_no_more_bytes_than_it_may() -> None:
    tier = ItemTier(20 * OVERHEAD)
    for number in range(40):
        tier.put(b"%d" % number, item())
        tier.get(b"0", 1.0)
    assert len(tier) == 19
    assert tier.get(b"0", 1.0) is not None, "it was used all the time"
    assert tier.get(b"1", 1.0) is None
    tier.put(b"large", item(b"x" * 3 * OVERHEAD))
    assert tier.get(b"large", 1.0) is None, "one item would take a tenth of all"


def test_an_item_that_is_put_again_counts_once() -> None:
    tier = ItemTier(20 * OVERHEAD)
    for _ in range(40):
        tier.put(b"same", item())
    tier.put(b"other", item())
    assert len(tier) == 2


def test_an_item_expires_and_a_request_may_want_a_younger_one() -> None:
    tier = ItemTier(20 * OVERHEAD)
    tier.put(b"x", item())
    assert tier.get(b"x", 9.0) is not None
    assert tier.get(b"x", 9.0, max_age_s=8.0) is None
    assert tier.get(b"x", 10.0) is None


def test_a_purge_takes_what_it_selects_and_is_counted() -> None:
    tier = ItemTier(20 * OVERHEAD)
    tier.put(b"a", item())
    tier.put(b"b", item(tenant="b", tags=("t",)))
    tier.remove(Selection(tenant="b", tag="u"))
    assert len(tier) == 2
    tier.remove(Selection(tag="t"))
    assert (tier.get(b"a", 1.0) is None, tier.get(b"b", 1.0) is None) == (False, True)
    tier.clear()
    assert (len(tier), tier.purges) == (0, 3)
