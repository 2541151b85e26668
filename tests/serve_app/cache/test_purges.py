"""A purge covers what was made before it, and every purge raises the epoch."""

from __future__ import annotations

from uuid import UUID

from serve_app.cache.entry import CacheEntry, Selection
from serve_app.cache.purges import REMEMBERED_PURGES, PurgeLog
from serve_app.openai.answers import Answer, Usage


def entry(created_at: float, tag: str = "red") -> CacheEntry:
    answer = Answer("m", "a", Usage(1, 1, 2))
    return CacheEntry(UUID(int=1), "t", "m", "p", "q", answer, created_at, created_at + 60, (tag,))


def test_an_entry_is_covered_by_later_purges_that_select_it() -> None:
    log = PurgeLog(0)
    log.record(Selection(tag="red"), 100.0)
    assert log.covers(entry(99.0))
    assert log.covers(entry(100.0))
    assert not log.covers(entry(100.1))
    assert not log.covers(entry(99.0, "blue"))


def test_every_purge_raises_the_epoch_and_nothing_lowers_it() -> None:
    log = PurgeLog(7)
    log.record(Selection(tag="red"), 100.0)
    assert log.epoch == 8
    log.continue_from(5)
    assert log.epoch == 8
    log.continue_from(50)
    assert log.epoch == 50


def test_only_the_last_purges_are_remembered() -> None:
    log = PurgeLog(0)
    log.record(Selection(tag="red"), 1.0)
    for second in range(REMEMBERED_PURGES):
        log.record(Selection(tag="blue"), 2.0 + second)
    assert not log.covers(entry(0.5))
    assert log.epoch == REMEMBERED_PURGES + 1
