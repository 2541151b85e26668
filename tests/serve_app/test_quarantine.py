"""Who is refused after members broke, and who is not."""

from __future__ import annotations

import pytest

from serve_app.quarantine import MOST_CLEARED, MOST_INCIDENTS, MOST_NAMED, SPAN_S, Quarantine, body_key

FOR_S = 60.0
POISON = b"poison"
NOW = 1000.0


def streams(count: int) -> list[bytes]:
    return [b"stream %d" % number for number in range(count)]


def refused(quarantine: Quarantine, *bodies: bytes, now: float = NOW) -> list[bytes]:
    return [body for body in bodies if quarantine.refused_for_s(body, now) > 0]


def test_one_break_refuses_nobody() -> None:
    quarantine = Quarantine(FOR_S)
    quarantine.broke(POISON, "a", NOW, begun=False)
    quarantine.broke(POISON, "a", NOW + 10, begun=False)
    assert refused(quarantine, POISON) == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_body_that_broke_two_members_alone_is_refused_for_a_while(begun: bool) -> None:
    quarantine = Quarantine(FOR_S)
    quarantine.broke(POISON, "a", NOW, begun=begun)
    quarantine.broke(POISON, "b", NOW + 1, begun=begun)
    assert quarantine.refused_for_s(POISON, NOW + 1) == FOR_S
    assert quarantine.refused_for_s(POISON, NOW + 30) == FOR_S - 29
    assert refused(quarantine, b"another", now=NOW + 1) == []
    assert quarantine.refused_for_s(POISON, NOW + 1 + FOR_S) == 0
    assert quarantine.is_empty


def test_sixty_four_streams_that_lose_two_members_one_after_the_other_are_innocent() -> None:
    quarantine = Quarantine(FOR_S)
    for member in ("a", "b", "c"):
        for body in streams(64):
            quarantine.broke(body, member, NOW, begun=True)
    assert refused(quarantine, *streams(64)) == []


def test_nor_are_they_guilty_where_none_of_them_was_answered_yet() -> None:
    quarantine = Quarantine(FOR_S)
    for member in ("a", "b", "c"):
        for body in streams(64):
            quarantine.broke(body, member, NOW, begun=False)
    assert refused(quarantine, *streams(64)) == []


def test_the_newest_request_is_blamed_for_the_streams_around_it() -> None:
    quarantine = Quarantine(FOR_S)
    for member in ("a", "b"):
        for body in streams(32):
            quarantine.broke(body, member, NOW, begun=True)
        quarantine.broke(POISON, member, NOW, begun=False)
    assert refused(quarantine, POISON, *streams(32)) == [POISON]


def test_of_two_that_break_two_members_together_neither_is_refused() -> None:
    quarantine = Quarantine(FOR_S)
    for member in ("a", "b"):
        for body in (POISON, b"innocent"):
            quarantine.broke(body, member, NOW, begun=False)
    assert refused(quarantine, POISON, b"innocent") == []
    quarantine.served(b"innocent", NOW)
    assert refused(quarantine, POISON, b"innocent") == [POISON]


def test_a_member_that_fails_everybody_says_nothing_of_a_body() -> None:
    """One incident lasts until it answers a request again, however long that is."""
    quarantine = Quarantine(FOR_S)
    for second in range(20):
        for member in ("a", "b"):
            quarantine.broke(b"body %d" % second, member, NOW + second, begun=False)
    assert refused(quarantine, *(b"body %d" % second for second in range(20)), now=NOW + 20) == []


def test_what_breaks_after_it_answered_again_is_another_incident() -> None:
    quarantine = Quarantine(FOR_S)
    for member in ("a", "b"):
        quarantine.broke(b"innocent", member, NOW, begun=False)
        quarantine.answered(member, NOW + SPAN_S + 1)
        quarantine.broke(POISON, member, NOW + SPAN_S + 2, begun=False)
    quarantine.served(b"innocent", NOW)
    assert refused(quarantine, POISON, b"innocent", now=NOW + 5) == [POISON]


def test_what_a_dead_members_last_bytes_answer_does_not_end_its_incident() -> None:
    quarantine = Quarantine(FOR_S)
    for member in ("a", "b"):
        for body in streams(4):
            quarantine.broke(body, member, NOW, begun=False)
            quarantine.answered(member, NOW)
    assert refused(quarantine, *streams(4)) == []


def test_who_was_answered_is_cleared() -> None:
    quarantine = Quarantine(FOR_S)
    quarantine.broke(b"popular", "a", NOW, begun=False)
    quarantine.served(b"popular", NOW)
    quarantine.broke(b"popular", "b", NOW, begun=False)
    assert refused(quarantine, b"popular") == []


def test_who_was_answered_is_cleared_of_the_next_incidents_too_for_a_while() -> None:
    """Many clients ask the same. One stands alone as a member dies, and another one at the next."""
    quarantine = Quarantine(FOR_S)
    quarantine.broke(b"another", "a", NOW, begun=True)
    quarantine.served(b"popular", NOW)
    quarantine.broke(b"popular", "a", NOW, begun=False)
    lonely = quarantine.broke(b"popular", "b", NOW, begun=False)
    assert refused(quarantine, b"popular") == []
    assert not lonely.is_lonely
    later = NOW + FOR_S
    quarantine.broke(b"popular", "c", later, begun=False)
    quarantine.broke(b"popular", "d", later, begun=False)
    assert refused(quarantine, b"popular", now=later) == [b"popular"]


def test_memory_is_bounded() -> None:
    quarantine = Quarantine(FOR_S)
    for number in range(4 * MOST_INCIDENTS):
        for body in streams(2 * MOST_NAMED):
            incident = quarantine.broke(body, f"member {number}", NOW, begun=False)
        assert len(incident.unbegun.named) == MOST_NAMED
    assert len(quarantine._incidents) == MOST_INCIDENTS
    assert len(quarantine._open) <= MOST_INCIDENTS + 1
    for body in streams(2 * MOST_CLEARED):
        quarantine.served(body, NOW)
    assert len(quarantine._cleared) == MOST_CLEARED


def test_a_quarantine_of_no_time_refuses_nobody() -> None:
    quarantine = Quarantine(0.0)
    quarantine.broke(POISON, "a", NOW, begun=False)
    quarantine.broke(POISON, "b", NOW, begun=False)
    assert refused(quarantine, POISON) == []


def test_a_body_is_another_for_another_tenant_or_path() -> None:
    asked = [("a", "/x", b"{}"), ("b", "/x", b"{}"), ("a", "/y", b"{}"), ("a", "/x", b"[]")]
    assert len({body_key(*each) for each in asked}) == 4
    assert body_key("a", "/x", b"{}") == body_key("a", "/x", b"{}")
