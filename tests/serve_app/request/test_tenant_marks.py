"""What stands for a tenant."""

from __future__ import annotations

from itertools import combinations

from serve_app.request.tenant_marks import KNOWN_MARKS, SECRET_BYTES, TenantMarks, new_secret

SECRET = b"s" * SECRET_BYTES
MARKS = TenantMarks(SECRET)


def test_whoever_has_the_secret_makes_the_same_marks() -> None:
    again = TenantMarks(SECRET)
    assert again.prefix_salt("a", "own") == MARKS.prefix_salt("a", "own")
    assert again.embedding_tag("a") == MARKS.embedding_tag("a")


def test_every_tenant_salt_use_and_start_has_marks_of_its_own() -> None:
    marks = [
        *(MARKS.prefix_salt(tenant, own) for tenant in ("a", "b", "") for own in (None, "", "null", "a")),
        *(MARKS.embedding_tag(tenant) for tenant in ("a", "b", "")),
        TenantMarks(new_secret()).prefix_salt("a", None),
    ]
    assert all(one != other for one, other in combinations(marks, 2))


def test_parts_cannot_be_shifted_from_one_to_the_next() -> None:
    assert MARKS.prefix_salt('a","b', None) != MARKS.prefix_salt("a", "b")
    assert MARKS.prefix_salt("ab", "c") != MARKS.prefix_salt("a", "bc")


def test_a_mark_shows_neither_tenant_nor_secret() -> None:
    assert "acme" not in MARKS.prefix_salt("acme", "acme")
    assert SECRET.decode() not in repr(MARKS)
    assert len(MARKS.prefix_salt("acme", None)) == 64


def test_what_is_remembered_is_bounded_and_stays_right() -> None:
    marks = TenantMarks(new_secret())
    first = marks.prefix_salt("a", None)
    for number in range(KNOWN_MARKS + 10):
        marks.prefix_salt("a", str(number))
    assert len(marks._known) <= KNOWN_MARKS
    assert marks.prefix_salt("a", None) == first
    assert TenantMarks(marks.secret).prefix_salt("a", None) == first


def test_a_sessions_pseudonym_is_stable_and_needs_the_secret() -> None:
    name = "a\0ann@example.com"
    assert MARKS.session(name) == TenantMarks(SECRET).session(name)
    assert MARKS.session(name) not in {MARKS.session("b\0ann@example.com"), MARKS.embedding_tag(name)[:16]}
    assert TenantMarks(new_secret()).session(name) != MARKS.session(name), "anyone could try names"
    assert "ann" not in MARKS.session(name)
    assert MARKS.session("\ud800")  # a name that is no valid text fails no request
