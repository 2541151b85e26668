"""Keys that are made at run time, as one gateway knows them."""

from __future__ import annotations

from serve_app.request.auth import ManagedKeys, make_key


def test_an_older_change_that_comes_late_does_not_bring_a_revoked_key_back() -> None:
    """This gateway's own change was answered before the revocation, and is put into force after it."""
    keys, (_, record) = ManagedKeys(), make_key("acme")
    keys.change([record], [])
    keys.change([], [record.id])
    keys.change([record], [])
    assert keys.get(record.id) is None


def test_another_store_may_have_a_key_that_was_revoked_before() -> None:
    keys, (_, record) = ManagedKeys(), make_key("acme")
    keys.change([], [record.id])
    keys.replace({record.id: record})
    assert keys.get(record.id) == record
    keys.change([record], [])
    assert keys.get(record.id) == record
