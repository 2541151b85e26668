"""The memory of recent reuses: when a pair may be audited, and what a report without a text refers to."""

from __future__ import annotations

from uuid import UUID

from serve_app.cache.bound import RecentReuses

ENTRY, OTHER = UUID(int=1), UUID(int=2)


def test_a_pair_may_be_audited_at_its_first_reuse_and_whenever_it_has_four_times_as_many() -> None:
    reuses, due = RecentReuses(), []
    for number in range(1, 100):
        if reuses.audit_is_due(ENTRY, "a"):
            due.append(number)
        reuses.add(ENTRY, "a", 0.9)
    assert due == [1, 4, 16, 64]


def test_pairs_are_counted_apart() -> None:
    reuses = RecentReuses()
    reuses.add(ENTRY, "a", 0.9)
    assert not reuses.audit_is_due(ENTRY, "a")
    assert reuses.audit_is_due(ENTRY, "b")
    assert reuses.audit_is_due(OTHER, "a")


def test_a_report_without_a_text_refers_to_what_the_entry_answered_last() -> None:
    reuses = RecentReuses()
    reuses.add(ENTRY, "a", 0.9)
    reuses.add(ENTRY, "b", 0.8)
    last, named = reuses.get(ENTRY), reuses.get(ENTRY, "a")
    assert last is not None
    assert (last.text, last.score) == ("b", 0.8)
    assert named is not None
    assert (named.text, named.score, named.count) == ("a", 0.9, 1)
    assert reuses.get(OTHER) is None


def test_the_oldest_pairs_are_forgotten_first() -> None:
    reuses = RecentReuses(capacity=2)
    for text in ("a", "b", "a", "c"):
        reuses.add(ENTRY, text, 0.9)
    assert reuses.get(ENTRY, "b") is None
    assert reuses.get(ENTRY, "a") is not None
    reuses.add(OTHER, "x", 0.9)
    reuses.add(OTHER, "y", 0.9)
    assert reuses.get(ENTRY) is None
